//! What coding agents send: requests as Codex and Claude Code make them, turn by turn.

use serde_json::{Value, json};

use super::client::Answer;
use super::fixture::{CONTEXT, Server, Setup, TEMPLATE, chat, say};
use super::messages::events as message_events;
use super::responses::{events, prompt};

const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

/// Refuses messages of the system that don't come first, as the templates of Qwen3.5 do.
const STRICT: &str = "{% for message in messages %}\
    {% if message.role == 'system' and not loop.first %}\
    {{ raise_exception('System message must be at the beginning.') }}{% endif %}\
    <|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}\
    {% if tools %}<tool_call>{\"name\": ..}</tool_call>{{ tools | tojson }}{% endif %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

async fn saying(template: &'static str, text: &str) -> Server {
    let mut setup = Setup { template: Some(template), ..Setup::default() };
    setup.limits.max_model_len = 8192;
    let script = say(text);
    Server::start(setup, move |_| script.clone()).await
}

/// As Codex opens a conversation.
fn codex(fields: Value) -> Value {
    let function = |name: &str| {
        json!({"type": "function", "name": name, "strict": false,
        "description": "d", "parameters": {"type": "object", "properties": {}}})
    };
    let grammar = json!({"type": "grammar", "syntax": "regex", "definition": "\\*\\*\\* [a-z]+"});
    let mut body = json!({
        "model": "tiny", "stream": false, "store": false, "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"}, "prompt_cache_key": "k", "parallel_tool_calls": true,
        "tool_choice": "auto",
        "input": [
            {"type": "message", "role": "developer",
                "content": [{"type": "input_text", "text": "Rules."}]},
            {"type": "message", "role": "developer",
                "content": [{"type": "input_text", "text": "More rules."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]},
        ],
        "tools": [
            function("shell"),
            {"type": "namespace", "name": "agents", "description": "Others.",
                "tools": [function("spawn"), function("wait")]},
            {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": grammar},
            {"type": "web_search", "external_web_access": false},
        ],
    });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn ok(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

#[tokio::test]
async fn the_first_request_of_codex_is_answered() {
    let call =
        "<tool_call>\n{\"name\": \"agents__spawn\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    let server = saying(STRICT, call).await;
    let answer = server.client.post(RESPONSES, &codex(json!({}))).await;
    let response = ok(&answer);
    let ignored = answer.header("x-sconce-ignored").unwrap();
    assert!(ignored.contains("tools[3]") && !ignored.contains("tools[2]"), "{ignored}");
    let item = &response["output"][0];
    assert_eq!((&item["type"], &item["namespace"]), (&json!("function_call"), &json!("agents")));
    assert_eq!((&item["name"], &item["arguments"]), (&json!("spawn"), &json!("{\"a\": 1}")));
    let kinds = ["function", "namespace", "custom"];
    let shown = response["tools"].as_array().unwrap();
    assert_eq!(shown.iter().map(|tool| &tool["type"]).collect::<Vec<_>>(), kinds);
    let prompt = prompt(&server, 0);
    assert!(prompt.contains("system\nRules.\n\nMore rules.<|im_end|>"), "{prompt}");
    assert!(prompt.contains("\"name\": \"agents__wait\"") && !prompt.contains("web_search"));
}

#[tokio::test]
async fn a_custom_tool_is_called_with_a_text() {
    let call = "<tool_call>\n{\"name\": \"apply_patch\", \"arguments\": {\"input\": \"*** a\\nb\"}}\n\
                </tool_call>";
    let server = saying(STRICT, call).await;
    let response = ok(&server.client.post(RESPONSES, &codex(json!({}))).await);
    let item = &response["output"][0];
    assert_eq!(item["type"], "custom_tool_call");
    assert_eq!((&item["name"], &item["input"]), (&json!("apply_patch"), &json!("*** a\nb")));
    let streamed = server.client.post(RESPONSES, &codex(json!({"stream": true}))).await;
    let events = events(&streamed);
    let told = |kind: &str| events.iter().find(|event| event["type"] == kind).cloned().unwrap();
    assert_eq!(told("response.custom_tool_call_input.delta")["delta"], "*** a\nb");
    assert_eq!(told("response.custom_tool_call_input.done")["input"], "*** a\nb");
    assert_eq!(told("response.output_item.done")["item"]["input"], "*** a\nb");
    assert!(!events.iter().any(|event| event["type"] == "response.function_call_arguments.delta"));
    // The regular expression binds what the model writes.
    let constrained = &server.engine.requests()[0].sampling;
    assert!(constrained.grammar.is_some());
}

#[tokio::test]
async fn results_of_all_tools_go_back_and_a_picture_ends_no_conversation() {
    let server = saying(TEMPLATE, "Done.").await;
    let input = json!([
        {"role": "user", "content": "Go."},
        {"type": "function_call", "call_id": "a", "namespace": "agents", "name": "spawn",
            "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": [
            {"type": "input_text", "text": "seen:"},
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}]},
        {"type": "custom_tool_call", "call_id": "b", "name": "apply_patch", "input": "*** x"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "ok"},
    ]);
    let answer = server.client.post(RESPONSES, &codex(json!({"input": input}))).await;
    ok(&answer);
    let ignored = answer.header("x-sconce-ignored").unwrap();
    assert!(ignored.contains("input[2].output[1]"), "{ignored}");
    let prompt = prompt(&server, 0);
    for text in [
        "\"name\": \"agents__spawn\"",
        "seen:\n[image omitted: the model reads text only]",
        "{\"name\": \"apply_patch\", \"arguments\": {\"input\": \"*** x\"}}",
        "tool\nok",
    ] {
        assert!(prompt.contains(text), "{text} in {prompt}");
    }
    let unanswered = json!([{"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}]);
    let answer = server.client.post(RESPONSES, &codex(json!({"input": unanswered}))).await;
    answer.error(400, "invalid_request_error", Some("input[0].call_id"));
}

#[tokio::test]
async fn tools_that_cannot_be_are_named() {
    let server = saying(TEMPLATE, "x").await;
    let custom = |format: Value| json!([{"type": "custom", "name": "a", "format": format}]);
    for (tools, param) in [
        (json!([{"type": "teleport"}]), "tools[0].type"),
        (json!([{"type": "namespace", "name": "a"}]), "tools[0].tools"),
        (
            json!([{"type": "namespace", "name": "a", "tools": [{"type": "mcp"}]}]),
            "tools[0].tools[0].type",
        ),
        (json!([{"type": "custom"}]), "tools[0].name"),
        (
            json!([{"type": "custom", "name": "a"}, {"type": "custom", "name": "a"}]),
            "tools[1].name",
        ),
        (
            custom(json!({"type": "grammar", "syntax": "ebnf", "definition": "a"})),
            "tools[0].format.syntax",
        ),
        (custom(json!({"type": "grammar", "syntax": "lark"})), "tools[0].format.definition"),
        (custom(json!({"type": "prose"})), "tools[0].format.type"),
        (
            custom(
                json!({"type": "grammar", "syntax": "lark", "definition": "start: <tool_call>"}),
            ),
            "tools[0].format",
        ),
    ] {
        let answer = server.client.post(RESPONSES, &codex(json!({"tools": tools}))).await;
        answer.error(400, "invalid_request_error", Some(param));
    }
}

/// As Claude Code sends a turn.
fn claude(fields: Value) -> Value {
    let mut body = json!({
        "model": "tiny", "max_tokens": 4096, "stream": false,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=f00d;"},
            {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
        ],
        "thinking": {"type": "adaptive", "display": "omitted"},
        "output_config": {"effort": "high"},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Go."}]},
            {"role": "system", "content": "The date is today."},
        ],
        "tools": [
            {"name": "Read", "input_schema": {"type": "object"}, "defer_loading": true},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        ],
    });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn a_turn_of_claude_code_is_answered() {
    let server = saying(STRICT, "Yes.").await;
    let answer = server.client.post(MESSAGES, &claude(json!({}))).await;
    ok(&answer);
    let prompt = prompt(&server, 0);
    let expected = "system\nYou are an agent.\n\nThe date is today.<|im_end|>\n<|im_start|>user\nGo.<|im_end|>";
    assert!(prompt.contains(expected), "{prompt}");
    let ignored = answer.header("x-sconce-ignored").unwrap();
    assert!(ignored.contains("system[0]") && ignored.contains("tools[1]"), "{ignored}");
    let between = claude(json!({"thinking": {"type": "between_tools"}}));
    ok(&server.client.post(MESSAGES, &between).await);
}

#[tokio::test]
async fn omitted_reasoning_comes_back_with_its_signature() {
    const THINKING: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n\
        {% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}\
        {{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n";
    let server = saying(THINKING, "<think>a secret</think>Yes.").await;
    for stream in [false, true] {
        let fields = json!({"stream": stream, "tools": null});
        let answer = server.client.post(MESSAGES, &claude(fields)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(!answer.text.contains("a secret"), "{}", answer.text);
        let signature = if stream {
            let events = message_events(&answer.text);
            let mut deltas = events.iter().map(|event| &event["delta"]["signature"]);
            deltas.find_map(Value::as_str).unwrap().to_owned()
        } else {
            let content = answer.json()["content"].clone();
            assert_eq!(
                (&content[0]["thinking"], &content[1]["text"]),
                (&json!(""), &json!("Yes."))
            );
            content[0]["signature"].as_str().unwrap().to_owned()
        };
        let messages = json!([
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "", "signature": signature},
                {"type": "text", "text": "Yes."}]},
            {"role": "user", "content": "On."},
        ]);
        let answer = server
            .client
            .post(MESSAGES, &claude(json!({"messages": messages, "tools": null})))
            .await;
        ok(&answer);
        let ignored = answer.header("x-sconce-ignored").unwrap_or_default();
        assert!(!ignored.contains("signature"), "{ignored}");
        let last = server.engine.requests().len() - 1;
        assert!(prompt(&server, last).contains("<think>a secret</think>Yes."));
    }
}

#[tokio::test]
async fn tool_results_of_any_kind_end_no_conversation() {
    let server = saying(TEMPLATE, "Yes.").await;
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
    let messages = json!([
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t", "name": "Read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
            {"type": "text", "text": "seen:"}, {"type": "image", "source": source},
            {"type": "tool_reference", "tool_name": "Write"}]}]},
    ]);
    let answer = server.client.post(MESSAGES, &claude(json!({"messages": messages}))).await;
    ok(&answer);
    let ignored = answer.header("x-sconce-ignored").unwrap();
    assert!(ignored.contains("messages[2].content[0].content[1]"), "{ignored}");
    let text = "seen:\n[image omitted: the model reads text only]\nThe tool Write is available.";
    assert!(prompt(&server, 0).contains(text));
}

#[tokio::test]
async fn a_picture_in_a_result_ends_no_conversation_by_any_protocol() {
    let server = saying(TEMPLATE, "Yes.").await;
    let url = json!({"url": "data:image/png;base64,AAAA"});
    let call =
        json!({"id": "t", "type": "function", "function": {"name": "Look", "arguments": "{}"}});
    let chat = json!({"model": "tiny", "messages": [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t", "content": [
            {"type": "text", "text": "seen:"}, {"type": "image_url", "image_url": url}]}]});
    ok(&server.client.post("/v1/chat/completions", &chat).await);
    let call = json!({"function": {"name": "Look", "arguments": {}}});
    let ollama = json!({"model": "tiny", "stream": false, "messages": [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "Look", "content": "seen:", "images": ["AAAA"]}]});
    ok(&server.client.post("/api/chat", &ollama).await);
    for index in [0, 1] {
        let seen = prompt(&server, index);
        assert!(seen.contains("[image omitted: the model reads text only]"), "{seen}");
    }
}

#[tokio::test]
async fn documents_of_text_are_read_and_others_are_refused() {
    let server = saying(TEMPLATE, "Yes.").await;
    let document = |source: Value| json!({"type": "document", "source": source, "title": "a.txt"});
    let plain = json!({"type": "text", "media_type": "text/plain", "data": "It is blue."});
    let blocks = json!({"type": "content", "content": [{"type": "text", "text": "It is red."}]});
    let content = json!([document(plain.clone()), document(blocks), {"type": "text", "text": "?"}]);
    let pdf = json!({"type": "base64", "media_type": "application/pdf", "data": "AAAA"});
    let messages = json!([
        {"role": "user", "content": content},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t", "name": "Read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
            document(plain), document(pdf.clone())]}]},
    ]);
    let answer = server.client.post(MESSAGES, &claude(json!({"messages": messages}))).await;
    ok(&answer);
    let frame = |text: &str| {
        format!(
            "<document>\n<source>a.txt</source>\n<document_content>\n{text}\n</document_content>\n\
             </document>"
        )
    };
    let seen = prompt(&server, 0);
    for text in [frame("It is blue."), frame("It is red.")] {
        assert!(seen.contains(&text), "{seen}");
    }
    assert_eq!(seen.matches("It is blue.").count(), 2, "{seen}");
    assert!(seen.contains("[document omitted: the model reads text only]"), "{seen}");
    let messages = json!([{"role": "user", "content": [document(pdf)]}]);
    let answer = server.client.post(MESSAGES, &claude(json!({"messages": messages}))).await;
    assert_eq!(answer.status, 400);
    let message = answer.json()["error"]["message"].to_string();
    assert!(message.contains("application/pdf") && message.contains("image blocks"), "{message}");
}

#[tokio::test]
async fn a_deferred_tool_is_told_of_where_a_search_found_it() {
    let server = saying(TEMPLATE, "Yes.").await;
    let schema = json!({"type": "object", "properties": {"deep": {"type": "string"}}});
    let tools = json!([
        {"name": "Search", "input_schema": {"type": "object"}},
        {"name": "Far", "input_schema": schema, "defer_loading": true},
        {"name": "Farther", "input_schema": schema, "defer_loading": true},
    ]);
    let found = json!([{"type": "tool_reference", "tool_name": "Far"}]);
    let messages = json!([
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t", "name": "Search", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": found}]},
    ]);
    for count in [1, 3] {
        let messages = &messages.as_array().unwrap()[..count];
        let body = claude(json!({"messages": messages, "tools": tools}));
        ok(&server.client.post(MESSAGES, &body).await);
    }
    let (before, after) = (prompt(&server, 0), prompt(&server, 1));
    assert!(before.contains("Search") && !before.contains("Far"), "{before}");
    let begins = before.rsplit_once("Go.").unwrap().0;
    assert!(after.starts_with(begins), "the cache keeps {begins:?} of {after}");
    assert_eq!(after.matches("deep").count(), 1, "{after}");
    assert!(
        after.contains("The tool Far is available: {") && !after.contains("Farther"),
        "{after}"
    );
    // What was not found can't be asked for but by its name.
    let body = json!({"tools": tools, "tool_choice": {"type": "tool", "name": "Farther"}});
    ok(&server.client.post(MESSAGES, &claude(body)).await);
    assert!(prompt(&server, 2).contains("Farther"));
}

#[tokio::test]
async fn overflows_are_told_in_the_words_that_clients_parse() {
    let server = Server::saying("x").await;
    let long = "a".repeat(CONTEXT);
    let body = claude(json!({"system": null, "tools": null,
        "messages": [{"role": "user", "content": long}]}));
    let answer = server.client.post(MESSAGES, &body).await;
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("prompt is too long: "), "{message}");
    assert!(message.ends_with(" tokens > 512 maximum"), "{message}");
    let short = json!({"system": null, "tools": null, "max_tokens": 32000,
        "messages": [{"role": "user", "content": "a"}]});
    let answer = server.client.post(MESSAGES, &claude(short)).await;
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    let words = "input length and `max_tokens` exceed context limit: ";
    assert!(message.starts_with(words) && message.contains(" + 32000 > 512, "), "{message}");
    for (path, body, param) in [
        (
            "/v1/chat/completions",
            chat(json!({"messages": [{"role": "user", "content": long}]})),
            "messages",
        ),
        ("/v1/completions", json!({"model": "tiny", "prompt": long}), "prompt"),
        (RESPONSES, json!({"model": "tiny", "input": long}), "input"),
    ] {
        let answer = server.client.post(path, &body).await;
        let message = answer.error(400, "invalid_request_error", Some(param));
        assert!(message.contains("This model's maximum context length is 512 tokens"), "{message}");
        assert_eq!(answer.json()["error"]["code"], "context_length_exceeded");
    }
}

#[tokio::test]
async fn more_tokens_than_fit_are_shortened_and_told() {
    let server = Server::saying("x").await;
    let answer = server.client.chat(&chat(json!({"max_tokens": CONTEXT}))).await;
    ok(&answer);
    let asked = &server.engine.requests()[0];
    let room = CONTEXT - asked.prompt_token_ids.len();
    assert_eq!(asked.stop.max_tokens, room);
    assert_eq!(answer.header("x-sconce-max-tokens"), Some(room.to_string().as_str()));
    let fits = server.client.chat(&chat(json!({"max_tokens": 3}))).await;
    assert_eq!((fits.status, fits.header("x-sconce-max-tokens")), (200, None));
    let above = server.client.chat(&chat(json!({"max_tokens": CONTEXT + 1}))).await;
    above.error(400, "invalid_request_error", Some("max_tokens"));
    let mut setup = Setup::default();
    setup.config.strict = true;
    let server = Server::start(setup, |_| say("x")).await;
    let refused = server.client.chat(&chat(json!({"max_tokens": CONTEXT}))).await;
    refused.error(400, "invalid_request_error", Some("max_tokens"));
}

#[tokio::test]
async fn no_model_is_the_served_one() {
    let server = Server::saying("x").await;
    for model in [json!(null), json!("")] {
        let body = ok(&server.client.chat(&chat(json!({"model": model}))).await);
        assert_eq!(body["model"], "tiny");
        let fields = json!({"model": model, "tools": null, "max_tokens": 5});
        let body = ok(&server.client.post(MESSAGES, &claude(fields)).await);
        assert_eq!(body["model"], "tiny");
    }
}

#[tokio::test]
async fn models_are_told_in_the_words_of_either_api() {
    let server = Server::saying("x").await;
    let version = [("anthropic-version", "2023-06-01")];
    let request = server.client.get_with("/v1/models?limit=1000", &version).await;
    let list = request.json();
    assert_eq!((&list["first_id"], &list["has_more"]), (&json!("tiny"), &json!(false)));
    let info = &list["data"][0];
    assert_eq!((&info["type"], &info["max_input_tokens"]), (&json!("model"), &json!(CONTEXT)));
    assert!(info["created_at"].as_str().unwrap().ends_with('Z'));
    let one = server.client.get_with("/v1/models/tiny", &version).await.json();
    assert_eq!(&one, info);
    assert_eq!(server.client.get("/v1/models").await.json()["object"], "list");
}

#[tokio::test]
async fn tools_are_told_in_texts_where_the_template_knows_none() {
    const PLAIN: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
        {% endfor %}<|im_start|>assistant\n";
    let call =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>";
    let server = saying(PLAIN, call).await;
    let messages = json!([
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
            "function": {"name": "weather", "arguments": "{\"city\": \"Basel\"}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "rain"},
    ]);
    let tools = super::tools::tools();
    let body = ok(&server.client.chat(&chat(json!({"messages": messages, "tools": tools}))).await);
    let called = &body["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(
        (&called["name"], &called["arguments"]),
        (&json!("weather"), &json!("{\"city\": \"Bern\"}"))
    );
    let prompt = prompt(&server, 0);
    for text in [
        "<|im_start|>system\nYou can call these functions:",
        "assistant\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Basel\"}}",
        "<|im_start|>user\n<tool_response>\nrain\n</tool_response>",
    ] {
        assert!(prompt.contains(text), "{text} in {prompt}");
    }
}
