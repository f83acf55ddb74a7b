//! `/v1/messages`: Anthropic's shapes, its events in their order, and what the engine is asked.

use std::time::Duration;

use sconce::engine::output::EngineError;
use serde_json::{Map, Value, json};

use super::client::{Answer, read_until};
use super::fake_engine::Script;
use super::fixture::{EOS, Server, Setup, endless, say, tokenizer};

pub const PATH: &str = "/v1/messages";
pub const PROMPT: &str = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
pub const CALLS: &str = "<think>Two calls.</think>\n\nLet me look.\n<tool_call>\n{\"name\": \
\"weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}}\n</tool_call>\n<tool_call>\n\
{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";

/// A request of one message, with more fields.
pub fn request(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "max_tokens": 200,
        "messages": [{"role": "user", "content": "Hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

pub fn tools() -> Value {
    let tool = |name: &str| {
        json!({"name": name, "description": "d",
            "input_schema": {"type": "object", "properties": {}}})
    };
    json!([tool("weather"), tool("time")])
}

/// With room for tools in the prompt.
pub fn roomy() -> Setup {
    let mut setup = Setup::default();
    setup.limits.max_model_len = 4096;
    setup
}

pub async fn saying(text: &str) -> Server {
    let script = say(text);
    Server::start(roomy(), move |_| script.clone()).await
}

/// What the engine was last asked to continue.
pub fn prompt_of(server: &Server) -> String {
    tokenizer().decode(&server.engine.requests().last().unwrap().prompt_token_ids, false)
}

/// Name and data of each event.
pub fn events(text: &str) -> Vec<Value> {
    assert!(text.ends_with("\n\n"), "{text}");
    let frames = text.trim_end().split("\n\n").map(|frame| {
        let (name, data) = frame.split_once('\n').unwrap_or_else(|| panic!("{frame}"));
        let name = name.strip_prefix("event: ").unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["type"], name);
        data
    });
    frames.collect()
}

fn streamed(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    events(&answer.text)
}

/// The message that a stream amounts to, by the rules of the API.
fn folded(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    let mut blocks: Vec<Value> = Vec::new();
    let (mut open, mut json) = (None, String::new());
    for event in &events[1..] {
        let index = event["index"].as_u64().map(|index| usize::try_from(index).unwrap());
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!((open, index), (None, Some(blocks.len())));
                open = index;
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                assert_eq!(index, open);
                let block = blocks.last_mut().unwrap();
                let delta = &event["delta"];
                let (kind, field) = match delta["type"].as_str().unwrap() {
                    "text_delta" => ("text", "text"),
                    "thinking_delta" => ("thinking", "thinking"),
                    "signature_delta" => ("thinking", "signature"),
                    "input_json_delta" => {
                        assert_eq!(block["type"], "tool_use");
                        json.push_str(delta["partial_json"].as_str().unwrap());
                        continue;
                    }
                    other => panic!("{other}"),
                };
                assert_eq!(block["type"], kind);
                let text =
                    format!("{}{}", block[field].as_str().unwrap(), delta[field].as_str().unwrap());
                block[field] = Value::from(text);
            }
            "content_block_stop" => {
                assert_eq!(index, open.take());
                let block = blocks.last_mut().unwrap();
                if block["type"] == "tool_use" && !json.is_empty() {
                    block["input"] = serde_json::from_str(&json)
                        .unwrap_or_else(|_| json!({"INVALID_JSON": json}));
                }
                json.clear();
            }
            "message_delta" => {
                assert_eq!(open, None);
                let changes = event["delta"].as_object().unwrap().clone();
                message.as_object_mut().unwrap().extend(changes);
                message["usage"] = event["usage"].clone();
            }
            "message_stop" | "ping" => {}
            other => panic!("{other}"),
        }
    }
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    message["content"] = Value::Array(blocks);
    message
}

/// With the ids, which differ from answer to answer, checked and cut.
fn without_ids(mut message: Value) -> Value {
    let cut = |id: &mut Value, prefix: &str| {
        assert!(id.as_str().unwrap().starts_with(prefix), "{id}");
        *id = Value::from(prefix);
    };
    cut(&mut message["id"], "msg_");
    for block in message["content"].as_array_mut().unwrap() {
        if block["type"] == "tool_use" {
            cut(&mut block["id"], "toolu_");
        }
    }
    message
}

/// The whole answer, after a check that the streamed one is the same.
pub async fn both_ways(server: &Server, fields: Value) -> Value {
    let mut body = request(fields);
    let whole = server.client.post(PATH, &body).await;
    assert_eq!(whole.status, 200, "{}", whole.text);
    body["stream"] = json!(true);
    let streamed = folded(&streamed(&server.client.post(PATH, &body).await));
    let whole = without_ids(whole.json());
    assert_eq!(without_ids(streamed), whole);
    whole
}

pub fn kinds(message: &Value) -> Vec<&str> {
    let blocks = message["content"].as_array().unwrap().iter();
    blocks.map(|block| block["type"].as_str().unwrap()).collect()
}

/// The error's message, after a check of its shape.
pub fn error(answer: &Answer, status: u16, kind: &str) -> String {
    let body = answer.json();
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(keys(&body), ["type", "error", "request_id"], "{body}");
    assert_eq!(keys(&body["error"]), ["type", "message"], "{body}");
    assert_eq!((answer.status, &body["type"]), (status, &json!("error")), "{body}");
    assert_eq!(body["error"]["type"], kind, "{body}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("request-id"), body["request_id"].as_str());
    assert_eq!(answer.header("x-request-id"), body["request_id"].as_str());
    body["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_answer_has_the_shape_of_the_api() {
    let server =
        Server::start(Setup::default(), |_| Script { cached_tokens: 5, ..say("Hello") }).await;
    let answer = server.client.post(PATH, &request(json!({}))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("request-id"), answer.header("x-request-id"));
    assert_eq!(answer.header("x-sconce-ignored"), None);
    let prompt_tokens = tokenizer().encode(PROMPT, false).unwrap().len();
    let expected = json!({
        "id": "msg_", "type": "message", "role": "assistant", "model": "tiny",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {
            "input_tokens": prompt_tokens - 5, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 5, "output_tokens": 6,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    });
    assert_eq!(without_ids(answer.json()), expected);
    assert_eq!(prompt_of(&server), PROMPT);
    assert_eq!(both_ways(&server, json!({})).await, expected);
}

#[tokio::test]
async fn events_come_in_the_order_of_the_api() {
    let server =
        Server::start(Setup::default(), |_| Script { cached_tokens: 5, ..say("Hey") }).await;
    let events = streamed(&server.client.post(PATH, &request(json!({"stream": true}))).await);
    let prompt_tokens = tokenizer().encode(PROMPT, false).unwrap().len();
    let usage = |output: usize| {
        json!({"input_tokens": prompt_tokens - 5, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 5, "output_tokens": output,
            "output_tokens_details": {"thinking_tokens": 0}})
    };
    let message = json!({"id": events[0]["message"]["id"], "type": "message", "role": "assistant",
        "model": "tiny", "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": usage(1)});
    let delta = |text: &str| {
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}})
    };
    let expected = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}}),
        delta("H"),
        delta("e"),
        delta("y"),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": usage(4)}),
        json!({"type": "message_stop"}),
    ];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn thoughts_text_and_calls_are_blocks_in_that_order() {
    let server = saying(CALLS).await;
    let message = both_ways(&server, json!({"tools": tools()})).await;
    assert_eq!(
        message["content"],
        json!([
            {"type": "thinking", "thinking": "Two calls.", "signature": ""},
            {"type": "text", "text": message["content"][1]["text"]},
            {"type": "tool_use", "id": "toolu_", "name": "weather",
                "input": {"city": "Zürich", "days": 2}},
            {"type": "tool_use", "id": "toolu_", "name": "time", "input": {}},
        ])
    );
    assert_eq!(message["content"][1]["text"].as_str().unwrap().trim(), "Let me look.");
    assert_eq!(message["stop_reason"], "tool_use");
    assert!(message["usage"]["output_tokens_details"]["thinking_tokens"].as_u64() > Some(9));
    let body = request(json!({"tools": tools(), "stream": true}));
    let events = streamed(&server.client.post(PATH, &body).await);
    let inputs = events.iter().filter(|event| event["delta"]["type"] == "input_json_delta");
    assert!(inputs.count() > 3, "the input comes in pieces");
}

#[tokio::test]
async fn text_between_calls_keeps_its_place() {
    let call = "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";
    for (between, expected) in
        [("\n", vec!["tool_use", "tool_use"]), ("\nAgain:\n", vec!["tool_use", "text", "tool_use"])]
    {
        let server = saying(&format!("{call}{between}{call}")).await;
        let message = both_ways(&server, json!({"tools": tools()})).await;
        assert_eq!(kinds(&message), expected);
    }
}

#[tokio::test]
async fn whitespace_is_text_only_with_more_of_it() {
    for (text, expected) in [
        ("", json!([])),
        (" \n", json!([{"type": "text", "text": " \n"}])),
        ("  a\n", json!([{"type": "text", "text": "  a\n"}])),
        ("<think>a</think>\n", json!([{"type": "thinking", "thinking": "a", "signature": ""}])),
    ] {
        let server = saying(text).await;
        assert_eq!(both_ways(&server, json!({})).await["content"], expected, "{text:?}");
    }
}

#[tokio::test]
async fn input_that_was_cut_short_is_kept_as_text() {
    let server = saying(CALLS).await;
    let message = both_ways(&server, json!({"tools": tools(), "max_tokens": 100})).await;
    assert_eq!(message["stop_reason"], "max_tokens");
    assert_eq!(kinds(&message), ["thinking", "text", "tool_use"]);
    let raw = message["content"][2]["input"]["INVALID_JSON"].as_str().unwrap();
    assert!(raw.starts_with("{\"city\"") && !raw.ends_with('}'), "{raw}");
}

#[tokio::test]
async fn what_ended_the_answer_is_told() {
    let server = saying("abc<end> d").await;
    for (fields, reason, sequence) in [
        (json!({}), "end_turn", Value::Null),
        (json!({"stop_sequences": ["x", "<end>"]}), "stop_sequence", json!("<end>")),
        (json!({"max_tokens": 2}), "max_tokens", Value::Null),
        (json!({"stop_token_ids": [u32::from(b'c')]}), "end_turn", Value::Null),
    ] {
        let message = both_ways(&server, fields).await;
        assert_eq!(
            (&message["stop_reason"], &message["stop_sequence"]),
            (&json!(reason), &sequence)
        );
    }
    let mut setup = Setup::default();
    setup.config.clamp_max_tokens = true;
    let server = Server::start(setup, |_| Script { delay: Duration::ZERO, ..endless("ab") }).await;
    let message = both_ways(&server, json!({"max_tokens": 5000})).await;
    assert_eq!(message["stop_reason"], "model_context_window_exceeded");
}

#[tokio::test]
async fn an_error_after_the_beginning_is_an_event() {
    let server = Server::start(Setup::default(), |_| Script {
        fail: Some((2, EngineError::StepFailed("nan in layer 3".to_owned()))),
        ..say("abcdef")
    })
    .await;
    let answer = server.client.post(PATH, &request(json!({"stream": true}))).await;
    let events = streamed(&answer);
    let (last, before) = events.split_last().unwrap();
    assert_eq!(before[0]["type"], "message_start");
    assert_eq!(before.last().unwrap()["delta"]["text"], "b");
    let id = answer.header("request-id").unwrap();
    let expected = json!({"type": "error", "request_id": id,
        "error": {"type": "api_error", "message": last["error"]["message"]}});
    assert_eq!(last, &expected);
    assert!(last["error"]["message"].as_str().unwrap().contains("nan in layer 3"));
}

#[tokio::test]
async fn silence_is_filled_with_pings() {
    let setup = Setup { keep_alive: Duration::from_millis(40), ..Setup::default() };
    let server =
        Server::start(setup, |_| Script { delay: Duration::from_millis(150), ..say("ab") }).await;
    let events = streamed(&server.client.post(PATH, &request(json!({"stream": true}))).await);
    assert_eq!(events[0]["type"], "message_start");
    assert!(events.iter().filter(|event| *event == &json!({"type": "ping"})).count() >= 4);
    assert_eq!(folded(&events)["content"], json!([{"type": "text", "text": "ab"}]));
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_request() {
    let server = Server::start(Setup::default(), |_| endless("ab")).await;
    let mut socket = server.client.open(PATH, &request(json!({"stream": true}))).await;
    let seen = read_until(&mut socket, "text_delta").await;
    assert!(seen.starts_with("HTTP/1.1 200") && !seen.contains("message_stop"));
    drop(socket);
    server.engine.wait_for_aborts(1).await;
}

#[tokio::test]
async fn characters_and_special_tokens_come_whole() {
    let server = Server::start(Setup::default(), |_| Script {
        tokens: [super::fixture::bytes("é😀"), vec![EOS]].concat(),
        ..Script::default()
    })
    .await;
    let events = streamed(&server.client.post(PATH, &request(json!({"stream": true}))).await);
    let texts: Map<String, Value> = events
        .iter()
        .filter_map(|event| Some((event["delta"]["text"].as_str()?.to_owned(), Value::Null)))
        .collect();
    assert_eq!(texts.keys().collect::<Vec<_>>(), ["é", "😀"]);
}
