//! Requests that are wrong: SDKs raise by the status, and show the message of the error object.

use serde_json::json;

use super::case::{Case, case};
use super::fault::demand;
use super::probe::{CHAT, chat_body, merge};

pub(super) const CASES: [Case; 11] = [
    case!("broken JSON is a 400 with an error object", |probe| {
        let answer = probe.post_text(CHAT, "{\"model\": ", &[]).await?;
        demand!(matches!(answer.status, 400 | 422), "{}", answer.shown());
        demand!(answer.json()["error"]["message"].is_string(), "{}", answer.shown());
    }),
    case!("a body without messages is refused", |probe| {
        probe.refused(CHAT, chat_body(json!({"messages": null}))).await?;
    }),
    case!("no messages at all are refused", |probe| {
        probe.refused(CHAT, chat_body(json!({"messages": []}))).await?;
    }),
    case!("a message without a role is refused", |probe| {
        probe.refused(CHAT, chat_body(json!({"messages": [{"content": "a"}]}))).await?;
    }),
    case!("a temperature that is a word is refused", |probe| {
        probe.refused(CHAT, chat_body(json!({"temperature": "hot"}))).await?;
    }),
    case!("sampling parameters out of range are refused", |probe| {
        for fields in [
            json!({"temperature": -1}),
            json!({"top_p": 2}),
            json!({"n": 0}),
            json!({"max_tokens": -1}),
            json!({"top_logprobs": 5, "logprobs": false}),
            json!({"frequency_penalty": 9}),
        ] {
            let refused = probe.refused(CHAT, chat_body(fields.clone())).await;
            demand!(refused.is_ok(), "{fields} was taken");
        }
    }),
    case!("errors have a type, and param and code where known", |probe| {
        let error = probe.refused(CHAT, chat_body(json!({"temperature": -1}))).await?;
        demand!(error["type"].is_string(), "{error}");
        demand!(error.get("param").is_some() && error.get("code").is_some(), "{error}");
    }),
    case!("a prompt beyond the context is told in words that clients know", |probe| {
        let words = usize::try_from(probe.context.unwrap_or(8192)).unwrap_or(8192) + 1000;
        let long = "lamp ".repeat(words.min(2_000_000));
        let messages = json!([{"role": "user", "content": long}]);
        let error = probe.refused(CHAT, chat_body(json!({ "messages": messages }))).await?;
        let message = error["message"].as_str().unwrap_or_default().to_lowercase();
        let known = error["code"] == "context_length_exceeded"
            || message.contains("maximum context length");
        demand!(known, "{error}");
    }),
    case!("a wrong body with stream is refused before a stream begins", |probe| {
        probe.refused(CHAT, chat_body(json!({"stream": true, "temperature": -1}))).await?;
    }),
    case!("a route that isn't there is a 404", |probe| {
        let answer = probe.post("/v1/no/such/route", &json!({"model": probe.model})).await?;
        demand!(answer.status == 404, "{}", answer.shown());
    }),
    case!("a field that is null is one that is absent", |probe| {
        let mut body = chat_body(json!({}));
        for name in ["stop", "tools", "seed", "top_p", "logit_bias", "response_format", "user"] {
            body[name] = serde_json::Value::Null;
        }
        merge(&mut body, json!({"n": 1}));
        probe.ask(CHAT, body).await?;
    }),
];
