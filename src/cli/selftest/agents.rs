//! Requests as coding agents open their conversations: a server that refuses one of these can't be used with
//! that agent at all.

use serde_json::{Value, json};

use super::case::{Case, case};
use super::fault::{Fault, demand};
use super::probe::{Answer, CHAT, Probe, chat_body, shorten};

/// Asks, and tells a route that isn't there from a refusal.
async fn open(probe: &Probe, path: &str, body: &Value) -> Result<Answer, Fault> {
    let mut body = body.clone();
    body["model"] = json!(probe.model);
    let answer = probe.post(path, &body).await?;
    if matches!(answer.status, 404 | 405 | 501) {
        return Err(Fault::Absent(format!("{path}: {}", answer.shown())));
    }
    demand!(answer.status == 200, "{path} answered {}", answer.shown());
    Ok(answer)
}

fn function(name: &str) -> Value {
    json!({
        "type": "function", "name": name, "description": "Does something.", "strict": false,
        "parameters": {"type": "object", "properties": {}, "additionalProperties": false},
    })
}

/// As Codex opens a conversation.
fn codex() -> Value {
    let text = |text: &str| json!([{"type": "input_text", "text": text}]);
    json!({
        "stream": true, "store": false, "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"}, "prompt_cache_key": "k", "parallel_tool_calls": true,
        "tool_choice": "auto", "max_output_tokens": 24,
        "input": [
            {"type": "message", "role": "developer", "content": text("Rules.")},
            {"type": "message", "role": "developer", "content": text("More rules.")},
            {"type": "message", "role": "user", "content": text("Go.")},
        ],
        "tools": [
            function("shell"),
            {"type": "namespace", "name": "agents", "description": "Others.", "tools": [function("spawn")]},
            {"type": "custom", "name": "apply_patch", "description": "Patches."},
            {"type": "web_search", "external_web_access": false},
        ],
    })
}

/// As Claude Code opens a conversation.
fn claude() -> Value {
    let tool = |name: &str| json!({"name": name, "description": "d", "input_schema": {"type": "object", "properties": {}}});
    json!({
        "stream": true, "max_tokens": 24, "thinking": {"type": "adaptive", "display": "omitted"},
        "output_config": {"effort": "high"}, "metadata": {"user_id": "u"},
        "system": [{"type": "text", "text": "Rules.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Go."}]},
            {"role": "system", "content": "A reminder."},
        ],
        "tools": [tool("Bash"), tool("Read")],
    })
}

pub(super) const CASES: [Case; 5] = [
    case!("Codex: namespaces, custom and hosted tools beside functions", |probe| {
        let answer = open(probe, "/v1/responses", &codex()).await?;
        let kinds: Vec<String> = answer.events()?.into_iter().map(|event| event.name).collect();
        demand!(kinds.iter().any(|kind| kind == "response.created"), "{}", shorten(&answer.text));
    }),
    case!("Codex: a tool's output may be a list of parts", |probe| {
        let mut body = codex();
        let call = json!({
            "type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}",
        });
        let parts = json!([{"type": "input_text", "text": "done"}]);
        let output = json!({"type": "function_call_output", "call_id": "c1", "output": parts});
        if let Some(input) = body["input"].as_array_mut() {
            input.extend([call, output]);
        }
        open(probe, "/v1/responses", &body).await?;
    }),
    case!("Claude Code: a system message between others", |probe| {
        let answer = open(probe, "/v1/messages?beta=true", &claude()).await?;
        let events = answer.events()?;
        demand!(
            events.iter().any(|event| event.name == "message_stop"),
            "{}",
            shorten(&answer.text)
        );
    }),
    case!("OpenCode: max_tokens above what is left is no error", |probe| {
        let context = probe.context.unwrap_or(8192);
        let mut body = chat_body(json!({"max_tokens": context - 8, "stop": ["e", "a", " "]}));
        body["model"] = json!(probe.model);
        let answer = probe.post(CHAT, &body).await?;
        demand!(answer.status == 200, "{}", answer.shown());
    }),
    case!("programs that send fields of other servers are answered", |probe| {
        let fields = json!({
            "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "ignore_eos": false,
        });
        open(probe, CHAT, &chat_body(fields)).await?;
    }),
];
