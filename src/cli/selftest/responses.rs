//! The Responses API: the cases of the Open Responses suite (basic text, streaming, system prompt, tools,
//! pictures, several turns, compaction).

use serde_json::{Value, json};

use super::case::{Case, case};
use super::fault::{Fault, demand};
use super::probe::{Probe, merge, shorten};

const PATH: &str = "/v1/responses";
/// A red pixel.
const PICTURE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

fn body(fields: Value) -> Value {
    let mut body = json!({
        "input": [{"type": "message", "role": "user", "content": "Say hello in three words."}],
        "max_output_tokens": 32,
        "temperature": 0,
    });
    merge(&mut body, fields);
    body
}

fn said(role: &str, text: &str) -> Value {
    json!({"type": "message", "role": role, "content": text})
}

/// A response with an output.
async fn respond(probe: &Probe, fields: Value) -> Result<Value, Fault> {
    let answer = probe.ask(PATH, body(fields)).await?;
    demand!(
        answer["object"] == "response" && answer["id"].is_string(),
        "{}",
        shorten(&answer.to_string())
    );
    let ended = matches!(answer["status"].as_str(), Some("completed" | "incomplete"));
    demand!(ended, "status {}", answer["status"]);
    demand!(answer["output"].as_array().is_some_and(|output| !output.is_empty()), "no output");
    Ok(answer)
}

fn weather() -> Value {
    json!({
        "type": "function", "name": "get_weather", "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
            "required": ["unit"], "additionalProperties": false,
        },
    })
}

pub(super) const CASES: [Case; 8] = [
    case!("basic text response", |probe| {
        let answer = respond(probe, json!({})).await?;
        let item = &answer["output"][0];
        let text = &item["content"][0];
        demand!(item["type"] == "message" && text["type"] == "output_text", "{item}");
        demand!(text["text"].is_string() && answer["usage"]["output_tokens"].is_u64(), "{item}");
    }),
    case!("input may be a text", |probe| {
        respond(probe, json!({"input": "Hello."})).await?;
    }),
    case!("streaming response", |probe| {
        let events = probe.stream(PATH, body(json!({}))).await?;
        let events: Vec<Value> =
            events.iter().filter_map(|event| serde_json::from_str(&event.data).ok()).collect();
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        demand!(kinds.first() == Some(&"response.created"), "{kinds:?}");
        let last = kinds.last().copied().unwrap_or_default();
        demand!(["response.completed", "response.incomplete"].contains(&last), "{kinds:?}");
        let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
        let text: String = deltas.filter_map(|event| event["delta"].as_str()).collect();
        let end =
            events.last().map(|event| event["response"]["output"].clone()).unwrap_or_default();
        let messages =
            end.as_array().into_iter().flatten().filter(|item| item["type"] == "message");
        let whole: String =
            messages.filter_map(|item| item["content"][0]["text"].as_str()).collect();
        demand!(text == whole, "{text:?} in parts, {whole:?} at the end");
        let numbers: Vec<_> =
            events.iter().map(|event| event["sequence_number"].as_u64()).collect();
        let ascend = numbers.iter().enumerate().all(|(at, number)| *number == Some(at as u64));
        demand!(ascend, "sequence numbers {numbers:?}");
    }),
    case!("system prompt", |probe| {
        let input = json!([said("system", "You are a pirate."), said("user", "Say hello.")]);
        respond(probe, json!({ "input": input })).await?;
        respond(probe, json!({"instructions": "You are a pirate."})).await?;
    }),
    case!("tool calling", |probe| {
        let fields = json!({
            "tools": [weather()], "tool_choice": "required", "max_output_tokens": 200,
        });
        let answer = respond(probe, fields).await?;
        let output = answer["output"].as_array().cloned().unwrap_or_default();
        let call = output.iter().find(|item| item["type"] == "function_call");
        let call = call.ok_or_else(|| Fault::wrong(format!("no call: {}", answer["output"])))?;
        demand!(call["name"] == "get_weather" && call["call_id"].is_string(), "{call}");
        let text = call["arguments"].as_str().unwrap_or_default();
        let arguments: Value = serde_json::from_str(text).unwrap_or_default();
        demand!(arguments["unit"].is_string(), "{call}");
        let result = json!({
            "type": "function_call_output", "call_id": call["call_id"], "output": "21 degrees",
        });
        let input = json!([said("user", "How is the weather?"), call, result]);
        respond(probe, json!({"input": input, "tools": [weather()]})).await?;
    }),
    case!("image input", |probe| {
        let content = json!([
            {"type": "input_text", "text": "What do you see?"},
            {"type": "input_image", "image_url": PICTURE},
        ]);
        let input = json!([{"type": "message", "role": "user", "content": content}]);
        let mut asked = body(json!({ "input": input }));
        asked["model"] = json!(probe.model);
        let answer = probe.post(PATH, &asked).await?;
        if answer.status == 400 {
            return Err(Fault::Absent(format!("the model doesn't see: {}", answer.shown())));
        }
        demand!(answer.status == 200, "{}", answer.shown());
    }),
    case!("multi-turn conversation", |probe| {
        let turns = json!([
            said("user", "My name is Alice."),
            said("assistant", "Hello Alice!"),
            said("user", "What is my name?"),
        ]);
        respond(probe, json!({ "input": turns })).await?;
        let first = respond(probe, json!({"store": true})).await?;
        let again = json!({"input": "And now?", "previous_response_id": first["id"]});
        let again = respond(probe, again).await?;
        demand!(again["previous_response_id"] == first["id"], "{}", again["previous_response_id"]);
    }),
    case!("compaction", |probe| {
        let first = respond(probe, json!({"store": true})).await?;
        let asked = json!({
            "model": probe.model, "previous_response_id": first["id"], "max_output_tokens": 32,
        });
        let answer = probe.post("/v1/responses/compact", &asked).await?;
        if matches!(answer.status, 404 | 405 | 501) {
            return Err(Fault::Absent(answer.shown()));
        }
        let compacted = answer.json();
        demand!(compacted["object"] == "response.compaction", "{}", answer.shown());
        demand!(compacted["output"].is_array(), "{}", answer.shown());
    }),
];
