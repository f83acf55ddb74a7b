//! Tool calls: tools in the prompt, calls in the answer, streamed and whole.

use std::collections::BTreeMap;

use sconce::config::Parser;
use serde_json::{Value, json};

use super::fixture::{Server, Setup, chat, say};

/// With room for tools in the prompt.
pub async fn saying(text: &str) -> Server {
    let mut setup = Setup::default();
    setup.limits.max_model_len = 4096;
    let script = say(text);
    Server::start(setup, move |_| script.clone()).await
}

pub const ANSWER: &str = "Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": \
{\"city\": \"Zürich\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"time\", \
\"arguments\": {}}\n</tool_call>";

pub fn tools() -> Value {
    let function = |name: &str| {
        json!({"type": "function", "function": {"name": name, "description": "d",
            "parameters": {"type": "object", "properties": {}}}})
    };
    json!([function("weather"), function("time")])
}

/// Content, `(name, arguments)` per call, finish reason and number of logprobs of a streamed answer.
fn collect(chunks: &[Value]) -> (String, Vec<(String, String)>, Value, usize) {
    let mut content = String::new();
    let mut calls: BTreeMap<u64, (String, String)> = BTreeMap::new();
    let (mut finish, mut logprobs) = (Value::Null, 0);
    for choice in chunks.iter().filter_map(|chunk| chunk["choices"].get(0)) {
        content.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap();
            if let Some(name) = call["function"]["name"].as_str() {
                assert!(!calls.contains_key(&index), "a call begins once: {call}");
                assert_eq!(call["type"], "function");
                assert!(call["id"].as_str().unwrap().starts_with("call_"));
                calls.insert(index, (name.to_owned(), String::new()));
            } else {
                assert!(call.get("id").is_none() && call.get("type").is_none(), "{call}");
            }
            let arguments = call["function"]["arguments"].as_str().unwrap();
            calls.get_mut(&index).expect("the name comes first").1.push_str(arguments);
        }
        logprobs += choice["logprobs"]["content"].as_array().map_or(0, Vec::len);
        if !choice["finish_reason"].is_null() {
            finish = choice["finish_reason"].clone();
        }
    }
    (content, calls.into_values().collect(), finish, logprobs)
}

fn whole(body: &Value) -> (String, Vec<(String, String)>, Value, usize) {
    let choice = &body["choices"][0];
    let calls = choice["message"]["tool_calls"].as_array().into_iter().flatten().map(|call| {
        assert!(call["id"].as_str().unwrap().starts_with("call_"));
        assert_eq!(call["type"], "function");
        let text = |key: &str| call["function"][key].as_str().unwrap().to_owned();
        (text("name"), text("arguments"))
    });
    let content = choice["message"]["content"].as_str().unwrap_or_default().to_owned();
    let logprobs = choice["logprobs"]["content"].as_array().map_or(0, Vec::len);
    (content, calls.collect(), choice["finish_reason"].clone(), logprobs)
}

#[tokio::test]
async fn calls_are_read_from_the_answer_whole_and_streamed() {
    let server = saying(ANSWER).await;
    let body = chat(json!({"tools": tools(), "logprobs": true}));
    let answer = server.client.chat(&body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = whole(&answer.json());
    assert_eq!(answer.0.trim(), "Let me look.");
    assert_eq!(answer.1[0].0, "weather");
    let arguments: Value = serde_json::from_str(&answer.1[0].1).unwrap();
    assert_eq!(arguments, json!({"city": "Zürich", "days": 2}));
    assert_eq!(answer.1[1], ("time".to_owned(), "{}".to_owned()));
    assert_eq!((&answer.2, answer.3), (&json!("tool_calls"), ANSWER.len() + 1));
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let chunks = server.client.chat(&streamed).await.chunks();
    assert_eq!(collect(&chunks), answer);
    let fragments = chunks.iter().filter(|chunk| {
        let call = &chunk["choices"][0]["delta"]["tool_calls"][0];
        call["index"] == 0 && call["function"].get("name").is_none()
    });
    assert!(fragments.count() > 3, "arguments come in pieces");
}

#[tokio::test]
async fn no_tools_in_a_list_are_no_tools() {
    let server = saying("x").await;
    for fields in [json!({"tools": []}), json!({"tools": [], "tool_choice": "auto"})] {
        let answer = server.client.chat(&chat(fields)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    assert!(!server.engine.requests().is_empty());
}

#[tokio::test]
async fn the_template_sees_the_tools() {
    let server = saying("x").await;
    let path = "/v1/chat/completions/render";
    for choice in ["auto", "none"] {
        let body = chat(json!({"tools": tools(), "tool_choice": choice}));
        let prompt = server.client.post(path, &body).await.json()["prompt"].to_string();
        assert!(prompt.contains("\\\"name\\\": \\\"weather\\\""), "{prompt}");
    }
}

#[tokio::test]
async fn without_tools_an_answer_is_text() {
    let server = saying(ANSWER).await;
    for fields in [json!({}), json!({"tools": tools(), "tool_choice": "none"})] {
        let (content, calls, finish, _) = whole(&server.client.chat(&chat(fields)).await.json());
        assert_eq!((content.as_str(), calls.len(), finish), (ANSWER, 0, json!("stop")));
    }
}

#[tokio::test]
async fn an_answer_without_calls_is_text() {
    let server = saying("1 < 2 and <tool").await;
    let body = server.client.chat(&chat(json!({"tools": tools()}))).await.json();
    let (content, calls, finish, _) = whole(&body);
    assert_eq!((content.as_str(), calls.len(), finish), ("1 < 2 and <tool", 0, json!("stop")));
}

#[tokio::test]
async fn content_is_null_beside_calls_alone() {
    let server = saying("<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>").await;
    let body = server.client.chat(&chat(json!({"tools": tools()}))).await.json();
    assert_eq!(body["choices"][0]["message"]["content"], Value::Null);
    assert_eq!(whole(&body).1.len(), 1);
}

#[tokio::test]
async fn a_call_that_was_cut_short_ends_with_length() {
    let server = saying(ANSWER).await;
    let body = chat(json!({"tools": tools(), "max_tokens": 70}));
    let body = server.client.chat(&body).await.json();
    assert_eq!(body["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn one_call_at_most_without_parallel_calls() {
    let server = saying(ANSWER).await;
    let body = chat(json!({"tools": tools(), "parallel_tool_calls": false}));
    let answer = whole(&server.client.chat(&body).await.json());
    assert_eq!((answer.1.len(), answer.1[0].0.as_str()), (1, "weather"));
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    assert_eq!(collect(&server.client.chat(&streamed).await.chunks()).1, answer.1);
}

#[tokio::test]
async fn tools_that_cannot_be_served_are_refused_by_name() {
    let server = saying("x").await;
    let with = |tool: Value| json!({"tools": [tool]});
    for (fields, param) in [
        (json!({"tools": tools(), "tool_choice": "always"}), "tool_choice"),
        (
            json!({"tools": tools(), "tool_choice": {"type": "function",
            "function": {"name": "unheard_of"}}}),
            "tool_choice",
        ),
        (with(json!({"type": "custom"})), "tools[0].type"),
        (with(json!({"type": "function"})), "tools[0].function.name"),
        (with(json!({"type": "function", "function": {"name": ""}})), "tools[0].function.name"),
        (
            with(json!({"type": "function", "function": {"name": "f", "strict": "yes"}})),
            "tools[0].function.strict",
        ),
        (
            with(json!({"type": "function", "function": {"name": "f", "parameters": []}})),
            "tools[0].function.parameters",
        ),
        (
            with(json!({"type": "function", "function": {"name": "f", "description": 1}})),
            "tools[0].function.description",
        ),
        (with(json!("f")), "tools[0].type"),
        (json!({"tools": "f"}), "tools"),
    ] {
        let answer = server.client.chat(&chat(fields)).await;
        answer.error(400, "invalid_request_error", Some(param));
    }
    let mut setup = Setup::default();
    setup.config.tool_call_parser = Parser::Off;
    let server = Server::start(setup, |_| say("x")).await;
    let answer = server.client.chat(&chat(json!({"tools": tools()}))).await;
    assert!(answer.error(400, "invalid_request_error", Some("tools")).contains("format"));
}
