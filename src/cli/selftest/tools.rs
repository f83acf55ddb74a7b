//! Tools: what agents can't do without.

use serde_json::{Value, json};

use super::case::{Case, case};
use super::fault::{Fault, demand};
use super::probe::{CHAT, chat_body, choice, chunks, content};

/// A tool whose arguments are few.
pub(super) fn weather() -> Value {
    json!({
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
                "required": ["unit"],
                "additionalProperties": false,
            },
        },
    })
}

fn other() -> Value {
    json!({
        "type": "function",
        "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}},
    })
}

fn asked(fields: Value) -> Value {
    let mut body = chat_body(json!({"tools": [weather()], "max_tokens": 200}));
    super::probe::merge(&mut body, fields);
    body
}

/// The only call of an answer, with its arguments.
fn only_call(answer: &Value) -> Result<(Value, Value), Fault> {
    let calls = choice(answer)["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
    let [call] = &calls[..] else {
        return Err(Fault::wrong(format!("{} calls: {}", calls.len(), choice(answer))));
    };
    demand!(call["id"].as_str().is_some_and(|id| !id.is_empty()), "no id: {call}");
    demand!(call["type"] == "function", "{call}");
    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
    let arguments = serde_json::from_str(arguments)
        .map_err(|error| Fault::wrong(format!("arguments {arguments:?}: {error}")))?;
    Ok((call.clone(), arguments))
}

fn is_weather(arguments: &Value) -> bool {
    matches!(arguments["unit"].as_str(), Some("celsius" | "fahrenheit"))
}

pub(super) const CASES: [Case; 8] = [
    case!("tool_choice none is answered in words", |probe| {
        let answer =
            probe.ask(CHAT, asked(json!({"tool_choice": "none", "max_tokens": 24}))).await?;
        let calls = &choice(&answer)["message"]["tool_calls"];
        demand!(calls.as_array().is_none_or(Vec::is_empty), "{calls}");
        content(&answer)?;
    }),
    case!("tool_choice required gives a call that fits its schema", |probe| {
        let answer = probe.ask(CHAT, asked(json!({"tool_choice": "required"}))).await?;
        let calls =
            choice(&answer)["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
        demand!(!calls.is_empty(), "no call: {}", choice(&answer));
        for call in &calls {
            demand!(call["function"]["name"] == "get_weather", "{call}");
            let text = call["function"]["arguments"].as_str().unwrap_or_default();
            let arguments: Value = serde_json::from_str(text).unwrap_or_default();
            demand!(is_weather(&arguments), "{call}");
        }
        let reason = &choice(&answer)["finish_reason"];
        demand!(reason == "tool_calls", "finish_reason {reason}");
    }),
    case!("a named tool is called exactly once", |probe| {
        let named = json!({"type": "function", "function": {"name": "get_weather"}});
        let fields = json!({"tools": [other(), weather()], "tool_choice": named});
        let answer = probe.ask(CHAT, asked(fields)).await?;
        let (call, arguments) = only_call(&answer)?;
        demand!(call["function"]["name"] == "get_weather" && is_weather(&arguments), "{call}");
    }),
    case!("parallel_tool_calls false gives one call at most", |probe| {
        let fields = json!({"tool_choice": "required", "parallel_tool_calls": false});
        only_call(&probe.ask(CHAT, asked(fields)).await?)?;
    }),
    case!("a streamed call has its id first and arguments in parts", |probe| {
        let events = probe.stream(CHAT, asked(json!({"tool_choice": "required"}))).await?;
        let chunks = chunks(&events)?;
        let deltas: Vec<&Value> = chunks
            .iter()
            .flat_map(|chunk| {
                chunk["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten()
            })
            .filter(|delta| delta["index"] == 0)
            .collect();
        let first = deltas.first().ok_or_else(|| Fault::wrong("no call in the stream"))?;
        demand!(first["id"].is_string() && first["function"]["name"] == "get_weather", "{first}");
        let text: String =
            deltas.iter().filter_map(|delta| delta["function"]["arguments"].as_str()).collect();
        let arguments: Value = serde_json::from_str(&text)
            .map_err(|error| Fault::wrong(format!("arguments {text:?}: {error}")))?;
        demand!(is_weather(&arguments), "{arguments}");
        let reasons =
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str());
        let reasons: Vec<&str> = reasons.collect();
        demand!(reasons == ["tool_calls"], "finish_reason {reasons:?}");
    }),
    case!("a call and its result are taken back", |probe| {
        let call = json!({
            "id": "call_1", "type": "function",
            "function": {"name": "get_weather", "arguments": "{\"unit\": \"celsius\"}"},
        });
        let messages = json!([
            {"role": "user", "content": "How is the weather?"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"},
        ]);
        let fields = json!({"messages": messages, "tool_choice": "none", "max_tokens": 24});
        content(&probe.ask(CHAT, asked(fields)).await?)?;
    }),
    case!("a tool_choice that is no tool is refused", |probe| {
        let named = json!({"type": "function", "function": {"name": "no_such_tool"}});
        probe.refused(CHAT, asked(json!({"tool_choice": named}))).await?;
    }),
    case!("an empty list of tools is no tools", |probe| {
        content(&probe.ask(CHAT, asked(json!({"tools": [], "max_tokens": 24}))).await?)?;
    }),
];
