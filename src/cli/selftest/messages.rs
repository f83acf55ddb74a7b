//! Anthropic's Messages API.

use serde_json::{Value, json};

use super::case::{Case, case};
use super::fault::{Fault, demand};
use super::probe::{Probe, merge, shorten};

const PATH: &str = "/v1/messages";

pub(super) fn body(fields: Value) -> Value {
    let mut body = json!({
        "max_tokens": 24, "messages": [{"role": "user", "content": "Tell me about a lamp."}],
        "temperature": 0,
    });
    merge(&mut body, fields);
    body
}

async fn message(probe: &Probe, fields: Value) -> Result<Value, Fault> {
    let answer = probe.ask(PATH, body(fields)).await?;
    let good = answer["type"] == "message"
        && answer["role"] == "assistant"
        && answer["content"].is_array();
    demand!(good, "{}", shorten(&answer.to_string()));
    Ok(answer)
}

pub(super) const CASES: [Case; 6] = [
    case!("an answer has the shape that SDKs read", |probe| {
        let answer = message(probe, json!({})).await?;
        demand!(answer["id"].is_string() && answer["usage"]["output_tokens"].is_u64(), "{answer}");
        let reason = answer["stop_reason"].as_str().unwrap_or_default();
        demand!(["end_turn", "max_tokens", "stop_sequence"].contains(&reason), "{reason:?}");
    }),
    case!("a system prompt may be a text or blocks", |probe| {
        message(probe, json!({"system": "Be brief."})).await?;
        let blocks =
            json!([{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]);
        message(probe, json!({ "system": blocks })).await?;
    }),
    case!("a stream has its events in order", |probe| {
        let events = probe.stream(PATH, body(json!({}))).await?;
        let data: Vec<Value> =
            events.iter().filter_map(|event| serde_json::from_str(&event.data).ok()).collect();
        let kinds: Vec<&str> = data
            .iter()
            .filter_map(|event| event["type"].as_str())
            .filter(|kind| *kind != "ping")
            .collect();
        demand!(kinds.first() == Some(&"message_start"), "{kinds:?}");
        demand!(kinds.last() == Some(&"message_stop"), "{kinds:?}");
        let count = |kind: &str| kinds.iter().filter(|one| **one == kind).count();
        let (starts, stops) = (count("content_block_start"), count("content_block_stop"));
        demand!(starts == stops && starts > 0 && count("message_delta") >= 1, "{kinds:?}");
        let named = events.iter().zip(&data).all(|(event, data)| data["type"] == event.name);
        demand!(named, "events are not named after their types");
    }),
    case!("a tool is called and its result taken back", |probe| {
        let tool = json!({
            "name": "get_weather", "description": "The weather.",
            "input_schema": {
                "type": "object",
                "properties": {"unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
                "required": ["unit"],
            },
        });
        let fields = json!({
            "tools": [tool], "tool_choice": {"type": "tool", "name": "get_weather"}, "max_tokens": 200,
        });
        let answer = message(probe, fields).await?;
        let content = answer["content"].as_array().cloned().unwrap_or_default();
        let call = content.iter().find(|block| block["type"] == "tool_use");
        let call = call.ok_or_else(|| Fault::wrong(format!("no call: {}", answer["content"])))?;
        demand!(call["input"]["unit"].is_string() && call["id"].is_string(), "{call}");
        demand!(answer["stop_reason"] == "tool_use", "{}", answer["stop_reason"]);
        let result = json!([{"type": "tool_result", "tool_use_id": call["id"], "content": "21"}]);
        let messages = json!([
            {"role": "user", "content": "How is the weather?"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": result},
        ]);
        let fields = json!({
            "messages": messages, "tools": [tool], "tool_choice": {"type": "none"},
        });
        message(probe, fields).await?;
    }),
    case!("tokens are counted before they are sent", |probe| {
        let mut body = body(json!({"max_tokens": null, "temperature": null}));
        body["model"] = json!(probe.model);
        let answer = probe.post("/v1/messages/count_tokens", &body).await?;
        if matches!(answer.status, 404 | 405 | 501) {
            return Err(Fault::Absent(answer.shown()));
        }
        demand!(answer.json()["input_tokens"].as_u64() > Some(0), "{}", answer.shown());
    }),
    case!("errors have Anthropic's shape", |probe| {
        let body = json!({"model": probe.model, "messages": [], "max_tokens": 5});
        let answer = probe.post(PATH, &body).await?;
        let error = answer.json();
        demand!((400..500).contains(&answer.status), "{}", answer.shown());
        demand!(
            error["type"] == "error" && error["error"]["message"].is_string(),
            "{}",
            answer.shown()
        );
    }),
];
