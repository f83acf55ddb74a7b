//! Answers in a form that is asked for.

use serde_json::{Value, json};

use super::case::{Case, case};
use super::fault::{Fault, demand};
use super::probe::{CHAT, chat_body, choice, chunks, content};

fn schema() -> Value {
    json!({
        "type": "json_schema",
        "json_schema": {
            "name": "lamp",
            "strict": true,
            "schema": {
                "type": "object",
                "properties": {
                    "color": {"type": "string", "enum": ["red", "green"]},
                    "lit": {"type": "boolean"},
                },
                "required": ["color", "lit"],
                "additionalProperties": false,
            },
        },
    })
}

/// Whether a text is JSON of that schema and nothing else.
fn judge(text: &str) -> Result<(), Fault> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Fault::wrong(format!("{text:?} is no JSON: {error}")))?;
    let good = matches!(value["color"].as_str(), Some("red" | "green"))
        && value["lit"].is_boolean()
        && value.as_object().is_some_and(|object| object.len() == 2);
    demand!(good, "{value}");
    Ok(())
}

pub(super) const CASES: [Case; 5] = [
    case!("json_schema holds at temperature 0", |probe| {
        let body = chat_body(json!({"response_format": schema(), "max_tokens": 100}));
        let answer = probe.ask(CHAT, body).await?;
        judge(&content(&answer)?)?;
        demand!(choice(&answer)["finish_reason"] == "stop", "{}", choice(&answer)["finish_reason"]);
    }),
    case!("json_schema holds whatever is drawn", |probe| {
        for seed in 0..4 {
            let fields = json!({
                "response_format": schema(), "max_tokens": 100, "temperature": 2, "seed": seed,
            });
            judge(&content(&probe.ask(CHAT, chat_body(fields)).await?)?)?;
        }
    }),
    case!("json_schema holds in a stream", |probe| {
        let body = chat_body(json!({"response_format": schema(), "max_tokens": 100}));
        let chunks = chunks(&probe.stream(CHAT, body).await?)?;
        let deltas = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["content"]);
        judge(&deltas.filter_map(Value::as_str).collect::<String>())?;
    }),
    case!("json_object gives an object, or was cut by the bound", |probe| {
        let messages = json!([{"role": "user", "content": "Answer in JSON: a lamp."}]);
        let format = json!({"type": "json_object"});
        let fields = json!({"response_format": format, "messages": messages, "max_tokens": 200});
        let answer = probe.ask(CHAT, chat_body(fields)).await?;
        let text = content(&answer)?;
        if choice(&answer)["finish_reason"] == "length" {
            demand!(text.trim_start().starts_with('{'), "{text:?}");
        } else {
            let value: Result<Value, _> = serde_json::from_str(&text);
            demand!(value.is_ok_and(|value| value.is_object()), "{text:?}");
        }
    }),
    case!("a schema that is none is refused", |probe| {
        let format = json!({
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": {"type": "no-such-type"}},
        });
        probe.refused(CHAT, chat_body(json!({"response_format": format}))).await?;
    }),
];
