//! `/v1/responses`: shapes, the order of events, kept responses, and what is refused by name.

use sconce::engine::output::EngineError;
use serde_json::{Value, json};

use super::client::Answer;
use super::fake_engine::Script;
use super::fixture::{Server, Setup, TEMPLATE, say, tokenizer};

pub const CALLS: &str = "Let me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": \
{\"city\": \"Zürich\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n\
</tool_call>";
/// The usual template, of a model that thinks.
pub const THINKING: &str = "{% if false %}<think></think>{% endif %}{% for message in messages %}\
<|im_start|>{{ message.role }}\n{% if message.reasoning_content %}<think>\
{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}<|im_end|>\n{% endfor %}\
{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

pub fn request(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "input": "Hi"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

pub fn tools() -> Value {
    let function = |name: &str| {
        json!({"type": "function", "name": name, "description": "d",
            "parameters": {"type": "object", "properties": {}}})
    };
    json!([function("weather"), function("time")])
}

/// A server with room for tools in the prompt.
pub async fn saying(template: &'static str, text: &str) -> Server {
    let mut setup = Setup { template: Some(template), ..Setup::default() };
    setup.limits.max_model_len = 4096;
    let script = say(text);
    Server::start(setup, move |_| script.clone()).await
}

pub async fn respond(server: &Server, fields: Value) -> Answer {
    server.client.post("/v1/responses", &request(fields)).await
}

/// The response object of a request that succeeds.
pub async fn answer(server: &Server, fields: Value) -> Value {
    let answer = respond(server, fields).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// The events of a stream, after a check of their names and numbers.
pub fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let frames = answer.text.split("\n\n").filter(|frame| frame.starts_with("event: "));
    let events = frames.enumerate().map(|(at, frame)| {
        let (name, data) = frame.split_once('\n').unwrap();
        let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name, format!("event: {}", event["type"].as_str().unwrap()));
        assert_eq!(event["sequence_number"], at);
        event
    });
    assert!(!answer.text.contains("[DONE]"));
    events.collect()
}

pub async fn streamed(server: &Server, mut fields: Value) -> Vec<Value> {
    fields["stream"] = json!(true);
    events(&respond(server, fields).await)
}

/// The kinds of the events, repetitions left out.
fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

/// The prompt of request `at` as text.
pub fn prompt(server: &Server, at: usize) -> String {
    tokenizer().decode(&server.engine.requests()[at].prompt_token_ids, false)
}

/// Without ids, times and what only one of the two ways tells.
fn comparable(mut response: Value) -> Value {
    for key in ["id", "created_at", "completed_at", "timings"] {
        response[key] = Value::Null;
    }
    for item in response["output"].as_array_mut().unwrap() {
        assert!(item["id"].as_str().unwrap().len() > 8);
        item["id"] = Value::Null;
        if item["type"] == "function_call" {
            assert!(item["call_id"].as_str().unwrap().starts_with("call_"));
            item["call_id"] = Value::Null;
        }
    }
    response
}

/// The items that the events of a stream add up to.
fn folded(events: &[Value]) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    for event in events {
        let at = event["output_index"].as_u64().map(|at| usize::try_from(at).unwrap());
        let kind = event["type"].as_str().unwrap();
        let append = |target: &mut Value, more: &Value| {
            *target = json!(target.as_str().unwrap().to_owned() + more.as_str().unwrap());
        };
        match kind {
            "response.output_item.added" => {
                assert_eq!(at, Some(items.len()));
                assert_eq!(event["item"]["status"], "in_progress");
                items.push(event["item"].clone());
            }
            "response.content_part.added" => {
                let parts = items[at.unwrap()]["content"].as_array_mut().unwrap();
                assert_eq!(event["content_index"], parts.len());
                parts.push(event["part"].clone());
            }
            "response.output_text.delta" | "response.reasoning_text.delta" => {
                let part = &mut items[at.unwrap()]["content"][0];
                append(&mut part["text"], &event["delta"]);
            }
            "response.function_call_arguments.delta" => {
                append(&mut items[at.unwrap()]["arguments"], &event["delta"]);
            }
            "response.output_text.done" | "response.reasoning_text.done" => {
                assert_eq!(items[at.unwrap()]["content"][0]["text"], event["text"]);
            }
            "response.function_call_arguments.done" => {
                assert_eq!(items[at.unwrap()]["arguments"], event["arguments"]);
                assert_eq!(items[at.unwrap()]["name"], event["name"]);
            }
            "response.content_part.done" => {
                assert_eq!(items[at.unwrap()]["content"][0]["text"], event["part"]["text"]);
            }
            "response.output_item.done" => {
                let item = &mut items[at.unwrap()];
                item["status"] = event["item"]["status"].clone();
                if item["type"] == "message" {
                    let logprobs = event["item"]["content"][0]["logprobs"].clone();
                    item["content"][0]["logprobs"] = logprobs;
                }
                assert_eq!(*item, event["item"]);
            }
            _ => assert_eq!(at, None, "{event}"),
        }
        if let (Some(at), Some(item_id)) = (at, event.get("item_id")) {
            assert_eq!(*item_id, items[at]["id"], "{event}");
        }
    }
    items
}

/// Checks that a request is answered alike both ways; gives the answer.
async fn both_ways(server: &Server, fields: Value) -> Value {
    let whole = answer(server, fields.clone()).await;
    let events = streamed(server, fields).await;
    let last = &events.last().unwrap()["response"];
    assert_eq!(json!(folded(&events)), last["output"]);
    assert_eq!(comparable(last.clone()), comparable(whole.clone()));
    whole
}

#[tokio::test]
async fn a_response_has_the_shape_of_the_specification() {
    let server =
        Server::start(Setup::default(), |_| Script { cached_tokens: 5, ..say("Hello") }).await;
    let fields = json!({"seed": 7, "metadata": {"a": "b"}, "temperature": 0.5,
        "max_output_tokens": 20, "instructions": "Be brief."});
    let mut body = answer(&server, fields).await;
    assert!(body["id"].as_str().unwrap().starts_with("resp_"));
    assert!(body["created_at"].as_u64().unwrap() > 1_700_000_000);
    assert!(body["completed_at"].as_u64() >= body["created_at"].as_u64());
    assert_eq!(body["timings"].take()["prefill_ms"], 2.0);
    let item = &body["output"][0];
    assert!(item["id"].as_str().unwrap().starts_with("msg_"));
    let asked = prompt(&server, 0);
    assert_eq!(
        asked,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
         <|im_start|>assistant\n"
    );
    let input_tokens = server.engine.requests()[0].prompt_token_ids.len();
    let expected = json!({
        "id": body["id"], "object": "response", "created_at": body["created_at"],
        "status": "completed", "completed_at": body["completed_at"], "error": null,
        "incomplete_details": null, "model": "tiny",
        "output": [{"type": "message", "id": item["id"], "status": "completed",
            "role": "assistant", "content": [{"type": "output_text", "text": "Hello",
            "annotations": [], "logprobs": []}]}],
        "usage": {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
            "output_tokens": 6, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input_tokens + 6,
        },
        "instructions": "Be brief.", "previous_response_id": null, "store": true,
        "background": false, "max_output_tokens": 20, "max_tool_calls": null,
        "metadata": {"a": "b"}, "parallel_tool_calls": true,
        "reasoning": {"effort": null, "summary": null},
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tools": [], "tool_choice": "auto", "temperature": 0.5, "top_p": 1.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "top_logprobs": 0,
        "truncation": "disabled", "service_tier": "default",
        "safety_identifier": null, "prompt_cache_key": null,
        "seed": 7, "stop_reason": null, "timings": null,
    });
    assert_eq!(body, expected);
    let sampling = &server.engine.requests()[0];
    assert_eq!((sampling.sampling.temperature, sampling.stop.max_tokens), (0.5, 20));
}

#[tokio::test]
async fn events_come_in_the_order_of_the_contract() {
    let server = Server::saying("Hey").await;
    let events = streamed(&server, json!({})).await;
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(kinds(&events), expected);
    assert_eq!(events.len(), expected.len() + 2, "a delta a letter");
    for event in &events[..2] {
        let response = &event["response"];
        assert_eq!((&response["status"], &response["output"]), (&json!("in_progress"), &json!([])));
        assert_eq!((&response["usage"], &response["completed_at"]), (&Value::Null, &Value::Null));
    }
    let delta = json!({"type": "response.output_text.delta", "sequence_number": 4,
        "item_id": events[2]["item"]["id"], "output_index": 0, "content_index": 0, "delta": "H",
        "logprobs": []});
    assert_eq!(events[4], delta);
    let added = json!({"type": "message", "id": events[2]["item"]["id"], "status": "in_progress",
        "role": "assistant", "content": []});
    assert_eq!(events[2]["item"], added);
    let last = &events.last().unwrap()["response"];
    assert_eq!(
        (&last["status"], &last["usage"]["output_tokens"]),
        (&json!("completed"), &json!(4))
    );
}

#[tokio::test]
async fn calls_are_items_behind_the_text() {
    let server = saying(TEMPLATE, CALLS).await;
    let body = both_ways(&server, json!({"tools": tools(), "seed": 1})).await;
    let output = body["output"].as_array().unwrap();
    let types: Vec<&Value> = output.iter().map(|item| &item["type"]).collect();
    assert_eq!(types, ["message", "function_call", "function_call"]);
    assert_eq!(output[0]["content"][0]["text"].as_str().unwrap().trim(), "Let me look.");
    let call = |at: usize| (&output[at]["name"], &output[at]["status"]);
    assert_eq!(call(1), (&json!("weather"), &json!("completed")));
    assert_eq!(call(2), (&json!("time"), &json!("completed")));
    let arguments: Value = serde_json::from_str(output[1]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Zürich"}));
    assert_eq!(output[2]["arguments"], "{}");
    assert!(output[1]["id"].as_str().unwrap().starts_with("fc_"));
    assert_eq!(body["tools"][0]["strict"], false);
    let events = streamed(&server, json!({"tools": tools()})).await;
    let of_call: Vec<&str> =
        kinds(&events).into_iter().skip_while(|kind| !kind.contains("arguments")).take(5).collect();
    let expected = [
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
    ];
    assert_eq!(of_call, expected);
}

#[tokio::test]
async fn thoughts_are_an_item_before_the_text() {
    let server = saying(THINKING, "<think>hm, yes</think>\n\nAnswer").await;
    let fields = json!({"seed": 1, "include": ["message.output_text.logprobs"],
        "top_logprobs": 2});
    let body = both_ways(&server, fields).await;
    let [thoughts, message] = &body["output"].as_array().unwrap()[..] else { panic!("{body}") };
    assert!(thoughts["id"].as_str().unwrap().starts_with("rs_"));
    assert_eq!(thoughts["summary"], json!([]));
    assert_eq!(thoughts["content"], json!([{"type": "reasoning_text", "text": "hm, yes"}]));
    let part = &message["content"][0];
    assert_eq!(part["text"].as_str().unwrap().trim(), "Answer");
    let spelled: String = part["logprobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["token"].as_str().unwrap())
        .collect();
    assert_eq!(spelled, part["text"].as_str().unwrap(), "only the tokens of the text");
    assert_eq!(part["logprobs"][0]["top_logprobs"].as_array().unwrap().len(), 2);
    assert!(body["usage"]["output_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 6);
    let events = streamed(&server, json!({})).await;
    assert_eq!(
        kinds(&events)[2..8],
        [
            "response.output_item.added",
            "response.content_part.added",
            "response.reasoning_text.delta",
            "response.reasoning_text.done",
            "response.content_part.done",
            "response.output_item.done",
        ]
    );
}

#[tokio::test]
async fn logprobs_of_events_are_those_of_the_whole() {
    let server = Server::saying("Hey").await;
    let fields = json!({"include": ["message.output_text.logprobs"], "top_logprobs": 1});
    let events = streamed(&server, fields).await;
    let deltas: Vec<Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .flat_map(|event| event["logprobs"].as_array().unwrap().clone())
        .collect();
    let done = events.iter().find(|event| event["type"] == "response.output_text.done").unwrap();
    assert_eq!(json!(deltas), done["logprobs"]);
    assert_eq!(deltas.len(), 3);
    let first = json!({"token": "H", "logprob": -0.5, "top_logprobs": [{"token": "H",
        "logprob": -0.5}]});
    assert_eq!(deltas[0], first);
}

#[tokio::test]
async fn an_answer_that_is_cut_is_incomplete() {
    let server = saying(TEMPLATE, CALLS).await;
    for (most, items) in [(3, 1), (40, 2)] {
        let body = both_ways(
            &server,
            json!({"max_output_tokens": most, "tools": tools(),
            "seed": 1}),
        )
        .await;
        assert_eq!(body["status"], "incomplete");
        assert_eq!(body["incomplete_details"], json!({"reason": "max_output_tokens"}));
        assert_eq!(body["completed_at"], Value::Null);
        let output = body["output"].as_array().unwrap();
        assert!(output.len() <= items, "{body}");
        assert_eq!(output.last().unwrap()["status"], "incomplete");
        assert_eq!(body["usage"]["output_tokens"], most);
    }
    let events = streamed(&server, json!({"max_output_tokens": 3})).await;
    assert_eq!(events.last().unwrap()["type"], "response.incomplete");
}

#[tokio::test]
async fn an_answer_of_nothing_is_an_empty_message() {
    for text in ["", "\n \n"] {
        let server = Server::saying(text).await;
        let body = both_ways(&server, json!({"seed": 1})).await;
        assert_eq!(body["output"].as_array().unwrap().len(), 1);
        assert_eq!(body["output"][0]["content"][0]["text"], text);
        assert_eq!(body["status"], "completed");
    }
}

#[tokio::test]
async fn a_failure_after_the_first_token_is_two_events() {
    let fail = Some((2, EngineError::StepFailed("nan".to_owned())));
    let script = Script { fail, ..say("Hello") };
    let server = Server::start(Setup::default(), move |_| script.clone()).await;
    let events = streamed(&server, json!({"store": true})).await;
    let [.., error, failed] = &events[..] else { panic!() };
    assert_eq!(error["type"], "error");
    assert!(error["message"].as_str().unwrap().contains("nan"));
    assert_eq!((&error["code"], &error["param"]), (&json!("server_error"), &Value::Null));
    assert_eq!(failed["type"], "response.failed");
    let response = &failed["response"];
    assert_eq!(
        (&response["status"], &response["error"]["code"]),
        (&json!("failed"), &json!("server_error"))
    );
    assert_eq!(response["output"][0]["content"][0]["text"], "He");
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    assert_eq!(server.client.get(&path).await.status, 404, "a failed response is not kept");
    let answer = respond(&server, json!({})).await;
    answer.error(500, "server_error", None);
}

#[tokio::test]
async fn formats_and_choices_become_grammars() {
    let server = saying(TEMPLATE, "x").await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}}});
    let format = json!({"type": "json_schema", "name": "n", "schema": schema, "strict": true});
    let calls = |choice: Value| json!({"tools": tools(), "tool_choice": choice});
    for (fields, constrained) in [
        (json!({"text": {"format": {"type": "text"}}}), false),
        (json!({"text": {"format": {"type": "json_object"}}}), true),
        (json!({"text": {"format": format}}), true),
        (calls(json!("auto")), false),
        (calls(json!("required")), true),
        (calls(json!({"type": "function", "name": "time"})), true),
        (
            calls(json!({"type": "allowed_tools", "mode": "auto",
                "tools": [{"type": "function", "name": "time"}]})),
            true,
        ),
    ] {
        let body = answer(&server, fields.clone()).await;
        let asked = server.engine.requests().pop().unwrap();
        assert_eq!(asked.sampling.grammar.is_some(), constrained, "{fields}");
        for key in ["text", "tool_choice"] {
            if let Some(choice) = fields.get(key) {
                let echoed = if key == "text" { &body[key]["format"] } else { &body[key] };
                assert_eq!(echoed, choice.get("format").unwrap_or(choice));
            }
        }
    }
}
