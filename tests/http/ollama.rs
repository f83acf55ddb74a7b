//! `/api/chat` and `/api/generate`: Ollama's shapes, its lines in their order, and what the engine
//! is asked.

use std::time::Duration;

use sconce::engine::output::EngineError;
use sconce::engine::request::EngineRequest;
use serde_json::{Value, json};

use super::client::{Answer, read_until};
use super::contracts::Contract;
use super::fake_engine::Script;
use super::fixture::{CONTEXT, EOS, HELLO, Server, Setup, WORLD, bytes, endless, say, tokenizer};
use super::messages::{CALLS, roomy};
use super::responses::THINKING;

pub const CHAT: &str = "/api/chat";
pub const GENERATE: &str = "/api/generate";

/// A request of one message, with more fields.
fn request(fields: Value) -> Value {
    with(json!({"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}), fields)
}

/// A request of a prompt, with more fields.
fn prompt(fields: Value) -> Value {
    with(json!({"model": "tiny", "prompt": "Hi"}), fields)
}

fn with(mut body: Value, fields: Value) -> Value {
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// A model that reasons, says `text`.
async fn thinking(text: &str) -> Server {
    let script = say(text);
    Server::start(Setup { template: Some(THINKING), ..roomy() }, move |_| script.clone()).await
}

fn last(server: &Server) -> EngineRequest {
    server.engine.requests().pop().unwrap()
}

fn prompt_of(server: &Server) -> String {
    tokenizer().decode(&last(server).prompt_token_ids, false)
}

/// The lines of a stream.
fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    assert!(answer.text.ends_with('\n'));
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The answer that lines amount to, as the official clients put it together.
fn folded(lines: &[Value]) -> Value {
    let (end, parts) = lines.split_last().unwrap();
    assert!(parts.iter().all(|part| part["done"] == false), "{parts:?}");
    assert_eq!(end["done"], true);
    let mut whole = end.clone();
    let chats = whole.get("message").is_some();
    let inside = |part: &Value, name: &str| {
        let place = if chats { &part["message"] } else { part };
        place.get(name).cloned()
    };
    for name in ["content", "response", "thinking"] {
        let pieces = lines.iter().filter_map(|part| inside(part, name));
        let text: String = pieces.map(|piece| piece.as_str().unwrap().to_owned()).collect();
        if !text.is_empty() {
            let place = if chats { &mut whole["message"] } else { &mut whole };
            place[name] = json!(text);
        }
    }
    for name in ["tool_calls", "logprobs"] {
        let lists = lines.iter().filter_map(|part| match name {
            "logprobs" => part.get(name).cloned(),
            _ => inside(part, name),
        });
        let list: Vec<Value> = lists.flat_map(|list| list.as_array().unwrap().clone()).collect();
        if !list.is_empty() {
            let inner = chats && name == "tool_calls";
            let place = if inner { &mut whole["message"] } else { &mut whole };
            place[name] = json!(list);
        }
    }
    whole
}

/// Without what differs from one run to the next, after a look at it.
fn comparable(mut answer: Value) -> Value {
    let object = answer.as_object_mut().unwrap();
    let created = object.remove("created_at").unwrap();
    assert!(chrono::DateTime::parse_from_rfc3339(created.as_str().unwrap()).is_ok());
    assert!(object.remove("total_duration").unwrap().as_u64().unwrap() > 0);
    let calls = answer.pointer_mut("/message/tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        let id = call.as_object_mut().unwrap().remove("id").unwrap();
        assert!(id.as_str().unwrap().starts_with("call_"));
    }
    answer
}

/// The whole answer, after a check that the streamed one is the same and that both are as the
/// server describes them.
async fn both_ways(server: &Server, path: &str, mut body: Value) -> Value {
    let contract = Contract::own(&server.client).await;
    let schema = if path == CHAT { "OllamaChatAnswer" } else { "OllamaGenerateAnswer" };
    let streamed = lines(&server.client.post(path, &body).await);
    for line in &streamed {
        contract.check(line, schema);
    }
    body["stream"] = json!(false);
    let whole = server.client.post(path, &body).await;
    assert_eq!(whole.status, 200, "{}", whole.text);
    contract.check(&whole.json(), schema);
    let whole = comparable(whole.json());
    assert_eq!(comparable(folded(&streamed)), whole);
    whole
}

/// The text of an error, which is all that there is of it.
fn error(answer: &Answer, status: u16) -> String {
    let body = answer.json();
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["error"], "{body}");
    assert_eq!(answer.status, status, "{body}");
    body["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_answer_has_the_shape_of_the_api() {
    let script = Script { tokens: vec![HELLO, WORLD, EOS], ..Script::default() };
    let server = Server::start(Setup::default(), move |_| script.clone()).await;
    let expected = json!({
        "model": "tiny",
        "message": {"role": "assistant", "content": "hello world"},
        "done": true,
        "done_reason": "stop",
        "load_duration": 0,
        "prompt_eval_count": 21,
        "prompt_eval_duration": 2_000_000,
        "eval_count": 3,
        "eval_duration": 4_000_000,
    });
    let answer = both_ways(&server, CHAT, request(json!({}))).await;
    assert_eq!(answer, expected);
    assert_eq!(prompt_of(&server), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    let streamed = lines(&server.client.post(CHAT, &request(json!({}))).await);
    let texts: Vec<&Value> = streamed.iter().map(|line| &line["message"]["content"]).collect();
    assert_eq!(texts, ["hello", " world", ""]);
}

#[tokio::test]
async fn a_prompt_becomes_a_message_and_its_answer_can_be_gone_on_from() {
    let script = Script { tokens: vec![HELLO, EOS], ..Script::default() };
    let server = Server::start(Setup::default(), move |_| script.clone()).await;
    let answer = both_ways(&server, GENERATE, prompt(json!({"system": "Be brief."}))).await;
    assert_eq!((&answer["response"], &answer["done_reason"]), (&json!("hello"), &json!("stop")));
    let first = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
                 <|im_start|>assistant\n";
    assert_eq!(prompt_of(&server), first);
    let more = prompt(json!({"prompt": "More", "context": answer["context"]}));
    both_ways(&server, GENERATE, more).await;
    let second = "<|im_start|>user\nMore<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(prompt_of(&server), format!("{first}hello<|endoftext|>{second}"));
}

#[tokio::test]
async fn only_the_first_of_joined_prompts_begins_a_text() {
    let mut special_tokens = sconce::text::special_tokens::SpecialTokens::default();
    special_tokens.set("bos_token", "<|endoftext|>");
    let template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}";
    let setup = Setup { template: Some(template), special_tokens, ..Setup::default() };
    let server = Server::start(setup, |_| say("!")).await;
    let answer = server.client.post(GENERATE, &prompt(json!({"stream": false}))).await.json();
    assert_eq!(prompt_of(&server), "<|endoftext|>Hi");
    let more = prompt(json!({"context": answer["context"], "stream": false}));
    server.client.post(GENERATE, &more).await;
    // The model's own template, which the tokenizer of these tests has no such token for.
    assert!(prompt_of(&server).starts_with("<|endoftext|>Hi!"));
}

#[tokio::test]
async fn a_raw_prompt_stays_as_it_is() {
    let server = Server::saying("x").await;
    let answer = both_ways(&server, GENERATE, prompt(json!({"raw": true}))).await;
    assert_eq!(last(&server).prompt_token_ids, bytes("Hi"));
    assert!(answer.get("context").is_none());
    let refused = prompt(json!({"raw": true, "system": "Be brief."}));
    assert!(error(&server.client.post(GENERATE, &refused).await, 400).contains("system"));
    // Without a template, nothing else is possible.
    let plain = Server::start(Setup { template: None, ..Setup::default() }, |_| say("x")).await;
    both_ways(&plain, GENERATE, prompt(json!({}))).await;
    assert_eq!(last(&plain).prompt_token_ids, bytes("Hi"));
}

#[tokio::test]
async fn options_reach_the_sampler() {
    let server = Server::saying("abc").await;
    let options = json!({"num_predict": 2, "temperature": 0.5, "top_k": 7, "top_p": 0.5,
        "min_p": 0.25, "typical_p": 0.75, "seed": 11, "repeat_penalty": 1.5, "stop": ["zz"],
        "presence_penalty": 0.5, "frequency_penalty": 0.25, "num_ctx": CONTEXT,
        "logit_bias": {"65": -1}});
    let answer = server.client.post(CHAT, &request(json!({"options": options}))).await;
    assert_eq!(answer.header("x-sconce-ignored"), None);
    assert_eq!(lines(&answer).last().unwrap()["done_reason"], "length");
    let asked = last(&server);
    let sampling = &asked.sampling;
    assert_eq!((sampling.temperature, sampling.top_p, sampling.min_p), (0.5, 0.5, 0.25));
    assert_eq!((sampling.top_k, sampling.seed, sampling.typical_p), (7, 11, 0.75));
    assert_eq!((sampling.repetition_penalty, sampling.repeat_last_n), (1.5, Some(64)));
    assert_eq!((sampling.presence_penalty, sampling.frequency_penalty), (0.5, 0.25));
    assert_eq!((sampling.logit_bias.clone(), asked.stop.max_tokens), (vec![(65, -1.0)], 2));
    server
        .client
        .post(
            CHAT,
            &request(json!({"options": {"repeat_last_n": -1, "seed": -1,
        "repeat_penalty": 1.5, "num_predict": -1}})),
        )
        .await;
    assert_eq!(last(&server).sampling.repeat_last_n, None);
    assert!(last(&server).stop.max_tokens > 400);
}

#[tokio::test]
async fn a_stop_string_ends_an_answer() {
    let server = Server::start(Setup::default(), |_| endless("abcd")).await;
    let body = request(json!({"options": {"stop": ["cd"]}}));
    let answer = folded(&lines(&server.client.post(CHAT, &body).await));
    assert_eq!(answer["message"]["content"], "ab");
    assert_eq!(answer["done_reason"], "stop");
}

#[tokio::test]
async fn a_shorter_context_is_kept_and_a_longer_one_is_told() {
    let server = Server::start(Setup::default(), |_| endless("abcd")).await;
    let body = |num_ctx: usize| request(json!({"options": {"num_ctx": num_ctx}, "stream": false}));
    let answer = server.client.post(CHAT, &body(50)).await.json();
    assert_eq!((&answer["eval_count"], &answer["done_reason"]), (&json!(29), &json!("length")));
    let refused = error(&server.client.post(CHAT, &body(21)).await, 400);
    assert!(refused.contains("maximum context length is 21 tokens"), "{refused}");
    let told = server.client.post(CHAT, &body(CONTEXT + 1)).await;
    assert_eq!(told.header("x-sconce-ignored"), Some("options.num_ctx"));
    assert_eq!(told.json()["eval_count"], CONTEXT - 21);
}

#[tokio::test]
async fn what_changes_nothing_is_told_and_what_would_is_refused() {
    let server = Server::saying("x").await;
    let ignored = async |fields: Value| {
        let answer = server.client.post(CHAT, &request(fields)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.header("x-sconce-ignored").map(str::to_owned)
    };
    assert_eq!(ignored(json!({"keep_alive": "5m"})).await.as_deref(), Some("keep_alive"));
    for nothing in [
        json!({"keep_alive": -1, "truncate": false, "shift": false, "format": ""}),
        json!({"keep_alive": "-1s", "options": {"mirostat": 0, "tfs_z": 1.0, "top_p": null}}),
    ] {
        assert_eq!(ignored(nothing).await, None);
    }
    let options = json!({"options": {"num_gpu": 1, "num_thread": 4, "num_batch": 8, "new": 1}});
    let told = "options.num_gpu, options.num_thread, options.num_batch, options.new";
    assert_eq!(ignored(options).await.as_deref(), Some(told));
    for (fields, words) in [
        (json!({"shift": true}), "shift"),
        (json!({"truncate": true}), "truncate"),
        (json!({"options": {"mirostat": 2}}), "options.mirostat"),
        (json!({"options": {"tfs_z": 0.5}}), "options.tfs_z"),
        (
            json!({"options": {"num_predict": -3}}),
            "options.num_predict must be at least -2, got -3",
        ),
        (json!({"options": {"temperature": 3}}), "temperature must be in [0, 2], got 3"),
        (json!({"options": {"top_k": "x"}}), "options.top_k"),
        (json!({"options": {"repeat_penalty": 2, "repetition_penalty": 3}}), "repeat_penalty"),
        (json!({"options": {"stop": [""]}}), "options.stop"),
        (json!({"options": 3}), "options"),
        (json!({"format": "yaml"}), "format must be \"json\" or a JSON schema, got \"yaml\""),
        (json!({"think": "hard"}), "think must be true, false or one of"),
        (json!({"top_logprobs": 2}), "top_logprobs (2) needs logprobs"),
        (json!({"logprobs": true, "top_logprobs": 21}), "top_logprobs must be in [0, 20], got 21"),
        (
            json!({"messages": [{"role": "user", "content": "Hi", "images": ["aGk="]}]}),
            "messages[0].images[0]: parts of the type \"image\" are not supported",
        ),
        (json!({"messages": [{"role": "", "content": "Hi"}]}), "messages[0].role is required"),
        (json!({"messages": [{"role": "user", "content": 3}]}), "messages[0].content"),
        (json!({"tools": [{"type": "x"}]}), "tools[0].type"),
    ] {
        let refused = error(&server.client.post(CHAT, &request(fields)).await, 400);
        assert!(refused.contains(words), "{refused}");
    }
    for (fields, words) in [
        (json!({"suffix": "x"}), "suffix"),
        (json!({"template": "{{ .Prompt }}"}), "template"),
        (json!({"images": ["aGk="]}), "images[0]"),
        (json!({"context": [9999]}), "context: token ids must be in 0..261, got 9999"),
    ] {
        let refused = error(&server.client.post(GENERATE, &prompt(fields)).await, 400);
        assert!(refused.contains(words), "{refused}");
    }
}

#[tokio::test]
async fn reasoning_is_told_apart() {
    let server = thinking("<think>Easy.</think>\n\nhello world").await;
    for (path, body) in [(CHAT, request(json!({}))), (GENERATE, prompt(json!({"think": true})))] {
        let answer = both_ways(&server, path, body).await;
        let place = if path == CHAT { &answer["message"] } else { &answer };
        assert_eq!(place["thinking"], "Easy.");
        let said = if path == CHAT { &place["content"] } else { &place["response"] };
        assert_eq!(said, "hello world");
    }
}

#[tokio::test]
async fn templates_are_told_whether_and_how_much_to_reason() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}<think></think>\
                    {{ enable_thinking }} {{ reasoning_effort }}";
    let setup = Setup { template: Some(template), ..Setup::default() };
    let server = Server::start(setup, |_| say("x")).await;
    for (think, told) in
        [(json!(true), "True "), (json!(false), "False "), (json!("low"), "True low")]
    {
        let answer = server.client.post(CHAT, &request(json!({"think": think}))).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(prompt_of(&server), format!("Hi<think></think>{told}"));
    }
}

#[tokio::test]
async fn a_model_that_does_not_reason_can_t_be_asked_to() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let setup = Setup { template: Some(template), ..Setup::default() };
    let server = Server::start(setup, |_| say("x")).await;
    let refused = server.client.post(CHAT, &request(json!({"think": "low"}))).await;
    assert_eq!(error(&refused, 400), "\"tiny\" does not support thinking");
    assert_eq!(server.client.post(CHAT, &request(json!({"think": false}))).await.status, 200);
}

#[tokio::test]
async fn tools_are_called_with_objects() {
    let script = say(CALLS);
    let server = Server::start(roomy(), move |_| script.clone()).await;
    let tool = |name: &str| {
        json!({"type": "function", "function": {"name": name, "description": "d",
            "parameters": {"type": "object", "properties": {}}}})
    };
    let tools = json!([tool("weather"), tool("time")]);
    let answer = both_ways(&server, CHAT, request(json!({"tools": tools}))).await;
    let call = |index: usize, name: &str, arguments: Value| json!({"function": {"index": index, "name": name, "arguments": arguments}});
    let expected = json!([
        call(0, "weather", json!({"city": "Zürich", "days": 2})),
        call(1, "time", json!({}))
    ]);
    assert_eq!(answer["message"]["tool_calls"], expected);
    assert_eq!(answer["done_reason"], "stop");
    // Calls and results go back as templates know them.
    let messages = json!([{"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"index": 0, "name": "time", "arguments": {"zone": "UTC"}}}]},
        {"role": "tool", "content": "noon", "tool_name": "time", "tool_call_id": "c1"}]);
    let body = request(json!({"tools": tools, "messages": messages}));
    let again = server.client.post(CHAT, &body).await;
    assert_eq!(again.header("x-sconce-ignored"), None);
    let prompt = prompt_of(&server);
    assert!(
        prompt.contains("{\"name\": \"time\", \"arguments\": {\"zone\": \"UTC\"}}"),
        "{prompt}"
    );
    assert!(prompt.contains("<|im_start|>tool\nnoon<|im_end|>"), "{prompt}");
}

#[tokio::test]
async fn a_call_that_is_cut_short_keeps_its_text() {
    let cut = CALLS.find("days").unwrap();
    let script = say(&CALLS[..cut]);
    let server = Server::start(roomy(), move |_| script.clone()).await;
    let tools = json!([{"type": "function", "function": {"name": "weather"}}]);
    let answer = both_ways(&server, CHAT, request(json!({"tools": tools}))).await;
    let arguments = &answer["message"]["tool_calls"][0]["function"]["arguments"];
    assert!(arguments["INVALID_JSON"].as_str().unwrap().contains("Zürich"), "{answer}");
}

#[tokio::test]
async fn an_answer_can_be_put_into_the_models_mouth() {
    let server = Server::saying("x").await;
    let messages =
        json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well,"}]);
    both_ways(&server, CHAT, request(json!({"messages": messages}))).await;
    assert!(prompt_of(&server).ends_with("<|im_start|>assistant\nWell,"), "{}", prompt_of(&server));
}

#[tokio::test]
async fn logprobs_are_told_with_bytes_and_alternatives() {
    let script = Script { tokens: vec![HELLO, EOS], ..Script::default() };
    let server = Server::start(Setup::default(), move |_| script.clone()).await;
    for path in [CHAT, GENERATE] {
        let fields = json!({"logprobs": true, "top_logprobs": 2});
        let body = if path == CHAT { request(fields) } else { prompt(fields) };
        let entries = both_ways(&server, path, body).await["logprobs"].clone();
        assert_eq!(entries.as_array().unwrap().len(), 2, "{entries}");
        assert_eq!((&entries[0]["token"], &entries[0]["logprob"]), (&json!("hello"), &json!(-0.5)));
        assert_eq!(entries[0]["bytes"], json!(b"hello"));
        assert_eq!(entries[0]["top_logprobs"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn formats_bind_the_answer() {
    let server = Server::saying("x").await;
    for format in
        [json!("json"), json!({"type": "object", "properties": {"a": {"type": "integer"}}})]
    {
        let answer = server.client.post(CHAT, &request(json!({"format": format}))).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(last(&server).sampling.grammar.is_some());
    }
    let refused = json!({"format": {"type": "object", "patternProperties": 3}});
    let refused = error(&server.client.post(CHAT, &request(refused)).await, 400);
    assert!(refused.starts_with("format: "), "{refused}");
}

#[tokio::test]
async fn a_request_that_asks_nothing_is_told_that_the_model_is_there() {
    let server = Server::saying("x").await;
    let contract = Contract::own(&server.client).await;
    let chat = server.client.post(CHAT, &json!({"model": "tiny", "messages": []})).await;
    contract.check(&chat.json(), "OllamaChatAnswer");
    assert_eq!((&chat.json()["done"], &chat.json()["done_reason"]), (&json!(true), &json!("load")));
    let unload = server.client.post(GENERATE, &json!({"model": "tiny", "keep_alive": 0})).await;
    contract.check(&unload.json(), "OllamaGenerateAnswer");
    assert_eq!(unload.header("x-sconce-ignored"), Some("keep_alive"));
    assert!(server.engine.requests().is_empty());
    let wrong = json!({"model": "tiny", "options": {"top_k": "x"}});
    assert!(error(&server.client.post(CHAT, &wrong).await, 400).contains("options.top_k"));
}

#[tokio::test]
async fn a_name_may_have_the_tag_that_all_have() {
    let server = Server::saying("x").await;
    let body = request(json!({"model": "tiny:latest", "stream": false}));
    assert_eq!(server.client.post(CHAT, &body).await.json()["model"], "tiny:latest");
    let missing = server.client.post(CHAT, &request(json!({"model": "other:latest"}))).await;
    assert_eq!(error(&missing, 404), "the model \"other:latest\" does not exist");
}

#[tokio::test]
async fn errors_are_texts_before_and_within_a_stream() {
    let failing = |at: usize| {
        let fail = Some((at, EngineError::StepFailed("out of memory".to_owned())));
        Script { tokens: bytes("abc"), fail, ..Script::default() }
    };
    let server = Server::start(Setup::default(), move |_| failing(0)).await;
    let early = server.client.post(CHAT, &request(json!({}))).await;
    assert!(error(&early, 500).contains("out of memory"));
    let server = Server::start(Setup::default(), move |_| failing(2)).await;
    let mut late = lines(&server.client.post(CHAT, &request(json!({}))).await);
    let last = late.pop().unwrap();
    assert!(last["error"].as_str().unwrap().contains("out of memory"), "{last}");
    assert_eq!(late.len(), 2);
}

#[tokio::test]
async fn a_silent_stream_sends_lines_without_text() {
    let setup = Setup { keep_alive: Duration::from_millis(20), ..Setup::default() };
    let delay = Duration::from_millis(100);
    let script = Script { tokens: bytes("a"), delay, ..Script::default() };
    let server = Server::start(setup, move |_| script.clone()).await;
    let streamed = lines(&server.client.post(CHAT, &request(json!({}))).await);
    let silent = |line: &&Value| line["done"] == false && line["message"]["content"] == "";
    assert!(streamed.iter().filter(silent).count() >= 1, "{streamed:?}");
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_request() {
    let server = Server::start(Setup::default(), |_| endless("abc ")).await;
    let mut socket = server.client.open(CHAT, &request(json!({}))).await;
    read_until(&mut socket, "\"content\":\"c\"").await;
    drop(socket);
    server.engine.wait_for_aborts(1).await;
}

#[tokio::test]
async fn a_body_need_not_be_declared() {
    let server = Server::saying("x").await;
    let body = || request(json!({"stream": false})).to_string().into_bytes();
    let form = "application/x-www-form-urlencoded";
    let answer = server.client.post_bytes(CHAT, form, body()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(server.client.post_bytes(CHAT, "text/plain", body()).await.status, 415);
    assert_eq!(server.client.post_bytes("/v1/chat/completions", form, body()).await.status, 415);
}
