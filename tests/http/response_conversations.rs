//! `/v1/responses` over several turns: items as input, responses that are kept, and what is refused
//! by name.

use sconce::store::{Store, StorePlace};
use serde_json::{Value, json};

use super::client::read_until;
use super::fixture::{Server, Setup, TEMPLATE, endless, say};
use super::responses::{
    CALLS, THINKING, answer, prompt, request, respond, saying, streamed, tools,
};

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

#[tokio::test]
async fn items_become_the_messages_of_a_chat() {
    let server = saying(TEMPLATE, "x").await;
    let input = json!([
        {"role": "developer", "content": "Obey."},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
            "content": [{"type": "output_text", "text": "Looking.", "annotations": [],
            "logprobs": []}]},
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{\"x\": 1}"},
        {"type": "function_call", "call_id": "b", "name": "time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "rain"},
        {"type": "function_call_output", "call_id": "b", "output": [
            {"type": "input_text", "text": "noon"}]},
    ]);
    let sent = respond(&server, json!({"input": input, "instructions": "First."})).await;
    assert_eq!((sent.status, sent.header("x-sconce-ignored")), (200, None), "{}", sent.text);
    assert_eq!(
        prompt(&server, 0),
        "<|im_start|>system\nFirst.<|im_end|>\n<|im_start|>system\nObey.<|im_end|>\n\
         <|im_start|>user\none\ntwo<|im_end|>\n<|im_start|>assistant\nLooking.<tool_call>\n\
         {\"name\": \"weather\", \"arguments\": {\"x\": 1}}\n</tool_call><tool_call>\n\
         {\"name\": \"time\", \"arguments\": {}}\n</tool_call><|im_end|>\n\
         <|im_start|>tool\nrain<|im_end|>\n<|im_start|>tool\nnoon<|im_end|>\n\
         <|im_start|>assistant\n"
    );
}

#[tokio::test]
async fn thoughts_go_back_to_the_model() {
    let server = saying(THINKING, "<think>hm</think>yes").await;
    let first = answer(&server, json!({"store": true})).await;
    let fields = json!({"input": "And?", "previous_response_id": first["id"]});
    answer(&server, fields).await;
    let mut input = vec![json!({"role": "user", "content": "Hi"})];
    input.extend(first["output"].as_array().unwrap().clone());
    input.push(json!({"role": "user", "content": "And?"}));
    answer(&server, json!({"input": input})).await;
    let expected = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>hm</think>yes\
                    <|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!((prompt(&server, 1), prompt(&server, 2)), (expected.into(), expected.into()));
    let summary = json!([{"type": "reasoning", "id": "rs_1", "content": null, "summary": [
        {"type": "summary_text", "text": "short"}]}, {"role": "assistant", "content": "yes"}]);
    answer(&server, json!({"input": summary})).await;
    assert!(prompt(&server, 3).contains("assistant\n<think>short</think>yes<|im_end|>"));
}

#[tokio::test]
async fn reasoning_that_a_client_keeps_unread_goes_back_to_the_model() {
    let server = saying(THINKING, "<think>hm</think>yes").await;
    let fields = json!({"store": false, "include": ["reasoning.encrypted_content"]});
    let sent = respond(&server, fields.clone()).await;
    assert_eq!((sent.status, sent.header("x-sconce-ignored")), (200, None), "{}", sent.text);
    let first = sent.json();
    let opaque = first["output"][0]["encrypted_content"].clone();
    assert!(opaque.as_str().unwrap().len() > 8, "{first}");
    let events = streamed(&server, fields).await;
    let done = events.iter().find(|event| event["type"] == "response.output_item.done").unwrap();
    assert_eq!(done["item"]["encrypted_content"], opaque);
    let plain = answer(&server, json!({"store": false})).await;
    assert!(plain["output"][0].get("encrypted_content").is_none(), "{plain}");
    // As Codex sends it: without what it says.
    let turn = |opaque: &Value| {
        json!([
            {"role": "user", "content": "Hi"},
            {"type": "reasoning", "summary": [], "encrypted_content": opaque},
            first["output"][1],
            {"role": "user", "content": "And?"},
        ])
    };
    let sent = respond(&server, json!({"store": false, "input": turn(&opaque)})).await;
    assert_eq!((sent.status, sent.header("x-sconce-ignored")), (200, None), "{}", sent.text);
    assert!(prompt(&server, 3).contains("assistant\n<think>hm</think>yes<|im_end|>"));
    let sent = respond(&server, json!({"store": false, "input": turn(&json!("gAAAA"))})).await;
    assert_eq!(sent.header("x-sconce-ignored"), Some("input[1].encrypted_content"));
    assert!(prompt(&server, 4).contains("assistant\nyes<|im_end|>"), "{}", prompt(&server, 4));
}

#[tokio::test]
async fn a_kept_response_is_read_and_deleted() {
    let server = saying(TEMPLATE, CALLS).await;
    let whole = answer(&server, json!({"store": true, "tools": tools()})).await;
    let events = streamed(&server, json!({"store": true, "tools": tools()})).await;
    for response in [&whole, &events.last().unwrap()["response"]] {
        assert_eq!(response["store"], true);
        let path = format!("/v1/responses/{}", id(response));
        let read = server.client.get(&path).await;
        assert_eq!(read.header("content-type"), Some("application/json"));
        assert_eq!(&read.json(), response);
        let answer = server.client.get(&format!("{path}?stream=true")).await;
        answer.error(400, "invalid_request_error", Some("stream"));
        let read = server.client.get(&format!("{path}?include[]=x&wrong=1")).await;
        assert_eq!(read.header("x-sconce-ignored"), Some("include[], wrong"));
        let answer = server.client.request("POST", &format!("{path}/cancel")).await;
        let message = answer.error(400, "invalid_request_error", None);
        assert!(message.contains("Cannot cancel a synchronous response"), "{message}");
        let gone = server.client.request("DELETE", &path).await.json();
        assert_eq!(gone, json!({"id": response["id"], "object": "response", "deleted": true}));
        for (method, path) in [
            ("GET", path.clone()),
            ("DELETE", path.clone()),
            ("POST", format!("{path}/cancel")),
            ("GET", format!("{path}/input_items")),
        ] {
            let answer = server.client.request(method, &path).await;
            answer.error(404, "invalid_request_error", None);
            assert_eq!(answer.json()["error"]["code"], "response_not_found");
        }
    }
}

#[tokio::test]
async fn nothing_is_kept_if_the_request_says_so() {
    let server = Server::saying("x").await;
    let response = answer(&server, json!({"store": false})).await;
    assert_eq!(server.client.get(&format!("/v1/responses/{}", id(&response))).await.status, 404);
    let answer = respond(&server, json!({"previous_response_id": response["id"]})).await;
    answer.error(404, "invalid_request_error", Some("previous_response_id"));
    assert_eq!(answer.json()["error"]["code"], "previous_response_not_found");
}

#[tokio::test]
async fn a_conversation_goes_on_from_a_kept_response() {
    let server = saying(TEMPLATE, CALLS).await;
    let first =
        answer(&server, json!({"store": true, "tools": tools(), "instructions": "One."})).await;
    let outputs: Vec<Value> = first["output"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["type"] == "function_call")
        .map(|call| {
            json!({"type": "function_call_output", "call_id": call["call_id"],
                "output": "fine"})
        })
        .collect();
    let second = answer(
        &server,
        json!({"store": true, "tools": tools(), "input": outputs, "instructions": "Two.",
            "previous_response_id": first["id"]}),
    )
    .await;
    assert_eq!(second["previous_response_id"], first["id"]);
    let asked = prompt(&server, 1);
    assert!(!asked.contains("One.") && asked.contains("system\nTwo."), "{asked}");
    assert!(asked.contains("user\nHi<|im_end|>") && asked.contains("Zürich"), "{asked}");
    assert_eq!(asked.matches("tool\nfine<|im_end|>").count(), 2, "{asked}");
    let path = format!("/v1/responses/{}/input_items", id(&second));
    let items = server.client.get(&format!("{path}?order=asc")).await.json();
    let types: Vec<&Value> =
        items["data"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    let call = ["function_call", "function_call_output"];
    assert_eq!(types, ["message", "message", call[0], call[0], call[1], call[1]]);
    assert_eq!((&items["has_more"], &items["object"]), (&json!(false), &json!("list")));
    let page = server.client.get(&format!("{path}?limit=2")).await.json();
    assert_eq!(page["data"][0], items["data"][5], "the last one first");
    assert_eq!((&page["has_more"], &page["last_id"]), (&json!(true), &items["data"][4]["id"]));
    let after = page["last_id"].as_str().unwrap();
    let rest = server.client.get(&format!("{path}?limit=100&after={after}")).await.json();
    assert_eq!(rest["data"].as_array().unwrap().len(), 4);
    for (query, param) in
        [("limit=0", "limit"), ("limit=101", "limit"), ("order=up", "order"), ("after=x", "after")]
    {
        let answer = server.client.get(&format!("{path}?{query}")).await;
        answer.error(400, "invalid_request_error", Some(param));
    }
}

#[tokio::test]
async fn references_lead_to_kept_items() {
    let server = saying(TEMPLATE, "yes").await;
    let first = answer(&server, json!({"store": true})).await;
    let input = json!([{"type": "item_reference", "id": first["output"][0]["id"]},
        {"role": "user", "content": "Sure?"}]);
    answer(&server, json!({"input": input})).await;
    assert!(prompt(&server, 1).starts_with("<|im_start|>assistant\nyes<|im_end|>\n"));
    let input = json!([{"type": "item_reference", "id": "msg_none"}]);
    let answer = respond(&server, json!({"input": input})).await;
    answer.error(400, "invalid_request_error", Some("input[0].id"));
}

#[tokio::test]
async fn a_stream_that_its_client_leaves_is_aborted_and_not_kept() {
    let server = Server::start(Setup::default(), |_| endless("ab")).await;
    let body = request(json!({"stream": true, "store": true}));
    let mut socket = server.client.open("/v1/responses", &body).await;
    let seen = read_until(&mut socket, "response.output_text.delta").await;
    drop(socket);
    server.engine.wait_for_aborts(1).await;
    let begin = seen.find("resp_").unwrap();
    let path = format!("/v1/responses/{}", &seen[begin..begin + 37]);
    server.client.get(&path).await.error(404, "invalid_request_error", None);
}

#[tokio::test]
async fn input_tokens_are_those_of_the_prompt() {
    let server = saying(TEMPLATE, "x").await;
    let fields = json!({"instructions": "Be brief.", "tools": tools()});
    let count = server.client.post("/v1/responses/input_tokens", &request(fields.clone())).await;
    let count = count.json();
    assert_eq!(count["object"], "response.input_tokens");
    let response = answer(&server, fields).await;
    assert_eq!(count["input_tokens"], response["usage"]["input_tokens"]);
    assert_eq!(server.engine.requests().len(), 1, "counting runs nothing");
}

#[tokio::test]
async fn what_is_not_served_is_refused_by_name() {
    let server = saying(TEMPLATE, "x").await;
    let part = |kind: &str| json!([{"role": "user", "content": [{"type": kind, "text": "x"}]}]);
    let many: Value = (0..17).map(|at| (at.to_string(), json!("x"))).collect();
    let cases = [
        (json!({"input": null}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": 1}), "input"),
        (json!({"input": part("input_image")}), "input[0].content[0].type"),
        (json!({"input": part("input_file")}), "input[0].content[0].type"),
        (json!({"input": [{"role": "robot", "content": "x"}]}), "input[0].role"),
        (json!({"input": [{"role": "user"}]}), "input[0].content"),
        (json!({"input": [{"type": "web_search_call", "id": "x"}]}), "input[0].type"),
        (json!({"input": [{"content": "x"}]}), "input[0].type"),
        (json!({"input": ["x"]}), "input[0]"),
        (
            json!({"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]}),
            "input[0].call_id",
        ),
        (json!({"input": [{"type": "function_call", "name": "f"}]}), "input[0].arguments"),
        (json!({"tools": [{"type": "teleport"}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name"),
        (
            json!({"tools": [{"type": "function", "name": "f", "parameters": []}]}),
            "tools[0].parameters",
        ),
        (json!({"tools": tools(), "tool_choice": {"type": "mcp"}}), "tool_choice"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"background": true, "store": false}), "background"),
        (json!({"conversation": 1}), "conversation"),
        (json!({"conversation": "conv_1", "previous_response_id": "x"}), "conversation"),
        (json!({"prompt": {"id": "x"}}), "prompt"),
        (json!({"truncation": "auto"}), "truncation"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"max_output_tokens": 9999}), "max_output_tokens"),
        (json!({"max_tokens": 5}), "max_tokens"),
        (json!({"n": 2}), "n"),
        (json!({"temperature": 3}), "temperature"),
        (json!({"top_logprobs": 2}), "top_logprobs"),
        (json!({"include": ["everything"]}), "include[0]"),
        (json!({"reasoning": {"effort": "huge"}}), "reasoning.effort"),
        (json!({"reasoning": {"summary": "long"}}), "reasoning.summary"),
        (json!({"reasoning": {"mode": "pro"}}), "reasoning.mode"),
        (json!({"text": {"verbosity": "loud"}}), "text.verbosity"),
        (json!({"text": {"format": {"type": "xml"}}}), "text.format.type"),
        (json!({"text": {"format": {"type": "json_schema"}}}), "text.format.schema"),
        (json!({"text": {"format": {"type": "json_schema", "schema": {}}}}), "text.format.name"),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "x",
            "schema": {"type": "strange"}}}}),
            "text.format.schema",
        ),
        (json!({"response_format": {"type": "json_object"}}), "response_format"),
        (json!({"metadata": many}), "metadata"),
        (json!({"metadata": {"a": 1}}), "metadata.a"),
        (json!({"metadata": {"a": "x".repeat(513)}}), "metadata.a"),
        (json!({"stream_options": {}}), "stream_options"),
    ];
    for (fields, param) in cases {
        let answer = respond(&server, fields.clone()).await;
        let message = answer.error(400, "invalid_request_error", Some(param));
        assert!(message.contains(param.split('.').next_back().unwrap()), "{message}");
        assert!(!message.contains("messages["), "{message}");
    }
    let answer = respond(&server, json!({"model": "other"})).await;
    answer.error(404, "invalid_request_error", Some("model"));
    assert!(server.engine.requests().is_empty());
}

#[tokio::test]
async fn what_changes_nothing_is_named() {
    let server = saying(TEMPLATE, "x").await;
    let fields = json!({"user": "u", "service_tier": "auto", "max_tool_calls": 3, "wrong": 1,
        "include": ["web_search_call.results"], "reasoning": {"summary": "auto"},
        "tools": [], "tool_choice": "auto", "truncation": "disabled", "background": false,
        "text": {"format": {"type": "text"}}, "parallel_tool_calls": true});
    let sent = respond(&server, fields.clone()).await;
    let mut named: Vec<&str> = sent.header("x-sconce-ignored").unwrap().split(", ").collect();
    named.sort_unstable();
    let expected = ["include[0]", "max_tool_calls", "reasoning.summary", "user", "wrong"];
    assert_eq!(named, expected);
    let mut setup = Setup::default();
    setup.config.strict = true;
    let server = Server::start(setup, |_| say("x")).await;
    respond(&server, fields).await.error(400, "invalid_request_error", Some("wrong"));
}

#[tokio::test]
async fn a_conversation_goes_on_at_another_server() {
    let store = Store::open(&StorePlace::Memory, 64 << 20).unwrap();
    let setup = || Setup { store: Some(store.clone()), ..Setup::default() };
    let one = Server::start(setup(), |_| say("one")).await;
    let other = Server::start(setup(), |_| say("other")).await;
    let first = answer(&one, json!({})).await;
    let fields = json!({"input": "And?", "previous_response_id": first["id"]});
    let second = answer(&other, fields).await;
    assert!(prompt(&other, 0).contains("one<|im_end|>\n<|im_start|>user\nAnd?"));
    let path = format!("/v1/responses/{}", id(&second));
    assert_eq!(one.client.get(&path).await.json(), second);
    assert_eq!(one.client.request("DELETE", &path).await.status, 200);
    assert_eq!(other.client.get(&path).await.status, 404);
}

#[tokio::test]
async fn a_long_conversation_is_compacted() {
    let server = saying(TEMPLATE, "They want rain.").await;
    let input = json!([
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "two"},
    ]);
    let kept = answer(&server, json!({"input": input, "store": true})).await;
    // The conversation comes from the store, or with the request.
    let body = json!({"model": "tiny", "previous_response_id": kept["id"]});
    let stored = server.client.post("/v1/responses/compact", &body).await;
    let sent = server.client.post("/v1/responses/compact", &request(json!({"input": input}))).await;
    for (at, compacted) in [(1, stored.json()), (2, sent.json())] {
        assert!(prompt(&server, at).contains("two<|im_end|>"), "{}", prompt(&server, at));
        assert!(prompt(&server, at).contains("Answer with the summary only.<|im_end|>"));
        assert_eq!(compacted["object"], "response.compaction", "{compacted}");
        assert!(compacted.get("incomplete_details").is_none(), "{compacted}");
        assert!(compacted["usage"]["output_tokens"].as_u64().unwrap() > 0);
        let output = compacted["output"].as_array().unwrap();
        let texts: Vec<_> = output.iter().map(|item| &item["content"][0]["text"]).collect();
        assert_eq!(texts, [&json!("one"), &json!("two"), &Value::Null]);
        assert_eq!(output[2]["type"], "compaction");
        // It stands in place of the conversation.
        let mut next = output.clone();
        next.push(json!({"role": "user", "content": "And?"}));
        answer(&server, json!({"input": next})).await;
    }
    let expected = "<|im_start|>user\none<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n\
                    <|im_start|>assistant\nSummary of the conversation up to here:\n\
                    They want rain.<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n\
                    <|im_start|>assistant\n";
    assert_eq!((prompt(&server, 3), prompt(&server, 4)), (expected.into(), expected.into()));
}

#[tokio::test]
async fn what_can_not_be_compacted_or_read_is_refused_by_name() {
    let server = saying(TEMPLATE, "x").await;
    let compact = |fields: Value| {
        let (server, body) = (&server, request(fields));
        async move { server.client.post("/v1/responses/compact", &body).await }
    };
    for name in ["stream", "background"] {
        compact(json!({name: true})).await.error(400, "invalid_request_error", Some(name));
    }
    compact(json!({"input": []})).await.error(400, "invalid_request_error", Some("input"));
    let foreign = json!([{"type": "compaction", "encrypted_content": "gAAAAAB"}]);
    let path = Some("input[0].encrypted_content");
    respond(&server, json!({"input": foreign})).await.error(400, "invalid_request_error", path);
    let empty = json!([{"type": "compaction"}]);
    respond(&server, json!({"input": empty})).await.error(400, "invalid_request_error", path);
}
