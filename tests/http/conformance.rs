//! Answers of every kind, held against OpenAI's schemas and against the server's own document.

use sconce::config::ServerConfig;
use sconce::engine::output::EngineError;
use serde_json::{Value, json};

use super::client::Answer;
use super::contracts::Contract;
use super::fake_engine::Script;
use super::fixture::{Server, Setup, chat, completion, say};
use super::responses::{THINKING, request};
use super::{messages, responses, tools};

const THOUGHTS: &str = "<think>Easy.</think>\n\nhello world";

/// A server that thinks, calls or just talks, and both contracts.
struct Bench {
    server: Server,
    openai: Contract,
    own: Contract,
}

impl Bench {
    async fn saying(template: &'static str, text: &str) -> Self {
        Self::of(responses::saying(template, text).await).await
    }

    async fn of(server: Server) -> Self {
        let own = Contract::own(&server.client).await;
        Self { server, openai: Contract::openai(), own }
    }

    fn check(&self, value: &Value, theirs: &str, ours: &str) {
        self.openai.check(value, theirs);
        self.own.check(value, ours);
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.server.client.post(path, body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    async fn chat(&self, fields: Value) {
        let body = chat(fields);
        let answer = self.post("/v1/chat/completions", &body).await;
        self.check(&answer, "CreateChatCompletionResponse", "ChatCompletion");
        for chunk in self.chunks("/v1/chat/completions", body).await {
            self.check(&chunk, "CreateChatCompletionStreamResponse", "ChatCompletionChunk");
        }
    }

    async fn complete(&self, fields: Value) {
        let body = completion(fields);
        let answer = self.post("/v1/completions", &body).await;
        self.check_completion(answer);
        for chunk in self.chunks("/v1/completions", body).await {
            self.check_completion(chunk);
        }
    }

    /// The chunks of the same request, with usage at the end; none for what can't stream.
    async fn chunks(&self, path: &str, mut body: Value) -> Vec<Value> {
        if body.get("prompt_logprobs").is_some() || body.get("best_of").is_some() {
            return Vec::new();
        }
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        let chunks = self.server.client.post(path, &body).await.chunks();
        let last = chunks.last().unwrap();
        assert!(last["choices"].as_array().unwrap().is_empty() && last["usage"].is_object());
        chunks
    }

    /// OpenAI's schema knows no null where nothing predicts a token and where an answer goes on,
    /// which is what its API says there.
    fn check_completion(&self, mut answer: Value) {
        self.own.check(&answer, "Completion");
        if answer["usage"].is_null() {
            answer.as_object_mut().unwrap().remove("usage");
        }
        for choice in answer["choices"].as_array_mut().unwrap() {
            if choice["finish_reason"].is_null() {
                choice["finish_reason"] = json!("stop");
            }
            for column in ["token_logprobs", "top_logprobs"] {
                let entries = choice.pointer_mut(&format!("/logprobs/{column}"));
                if let Some(entries) = entries.and_then(Value::as_array_mut) {
                    entries.retain(|entry| !entry.is_null());
                }
            }
        }
        self.openai.check(&answer, "CreateCompletionResponse");
    }

    /// The response, whole and as events; the kinds of the events.
    async fn respond(&self, fields: Value) -> Vec<String> {
        let answer = self.post("/v1/responses", &request(fields.clone())).await;
        self.check_response(&answer);
        let events = responses::streamed(&self.server, fields).await;
        for event in &events {
            self.check_response_event(event);
        }
        let mut kinds: Vec<String> =
            events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    /// OpenAI's schema knows no null for the usage of a response that runs, which is what its API
    /// says there, and what the Open Responses specification asks for.
    fn check_response_event(&self, event: &Value) {
        self.own.check_event(event, "ResponseEvent");
        let mut event = event.clone();
        if let Some(response) = event.get_mut("response").filter(|one| one["usage"].is_null()) {
            response.as_object_mut().unwrap().remove("usage");
        }
        self.openai.check_event(&event, "ResponseStreamEvent");
    }

    fn check_response(&self, response: &Value) {
        self.check(response, "Response", "Response");
    }

    fn check_error(&self, answer: &Answer, status: u16) {
        assert_eq!(answer.status, status, "{}", answer.text);
        self.check(&answer.json(), "ErrorResponse", "Error");
    }
}

#[tokio::test]
async fn chat_completions_keep_to_both_contracts() {
    let bench = Bench::saying(THINKING, "hello world").await;
    for fields in [
        json!({}),
        json!({"n": 2}),
        json!({"logprobs": true}),
        json!({"logprobs": true, "top_logprobs": 3, "n": 2}),
        json!({"max_tokens": 2}),
        json!({"stop": "wor"}),
        json!({"stop_token_ids": [104]}),
        json!({"return_token_ids": true, "prompt_logprobs": 2}),
        json!({"return_token_ids": true, "return_tokens_as_token_ids": true, "logprobs": true}),
    ] {
        bench.chat(fields).await;
    }
    Bench::saying(THINKING, THOUGHTS).await.chat(json!({"logprobs": true})).await;
}

#[tokio::test]
async fn tool_calls_keep_to_both_contracts() {
    let bench = Bench::of(tools::saying(tools::ANSWER).await).await;
    bench.chat(json!({"tools": tools::tools()})).await;
    bench.chat(json!({"tools": tools::tools(), "logprobs": true, "top_logprobs": 1})).await;
    bench.chat(json!({"tools": tools::tools(), "parallel_tool_calls": false})).await;
}

#[tokio::test]
async fn completions_keep_to_both_contracts() {
    let bench = Bench::saying(THINKING, "hello world").await;
    for fields in [
        json!({}),
        json!({"n": 2}),
        json!({"n": 1, "best_of": 2}),
        json!({"prompt": ["a", "b"], "max_tokens": 3}),
        json!({"logprobs": 0}),
        json!({"logprobs": 3, "n": 2}),
        json!({"echo": true}),
        json!({"echo": true, "logprobs": 2}),
        json!({"stop": "wor"}),
        json!({"return_token_ids": true}),
        json!({"prompt_logprobs": 1}),
    ] {
        bench.complete(fields).await;
    }
}

#[tokio::test]
async fn responses_keep_to_both_contracts() {
    let mut kinds = Vec::new();
    let bench = Bench::saying(THINKING, THOUGHTS).await;
    let logprobs = json!(["message.output_text.logprobs"]);
    for fields in [
        json!({}),
        json!({"include": logprobs, "top_logprobs": 2}),
        json!({"max_output_tokens": 10}),
        json!({"instructions": "Be brief.", "metadata": {"a": "b"}, "temperature": 0.5,
            "reasoning": {"effort": "low"}, "user": "me", "safety_identifier": "s"}),
    ] {
        kinds.extend(bench.respond(fields).await);
    }
    let bench = Bench::saying(super::fixture::TEMPLATE, responses::CALLS).await;
    for fields in [
        json!({"tools": responses::tools()}),
        json!({"tools": responses::tools(), "parallel_tool_calls": false,
            "tool_choice": {"type": "function", "name": "weather"}}),
        json!({"tools": responses::tools(), "tool_choice": "none"}),
    ] {
        kinds.extend(bench.respond(fields).await);
    }
    let fail = Some((3, EngineError::StepFailed("broken".to_owned())));
    let script = Script { fail, ..say("hello world") };
    let bench = Bench::of(Server::start(Setup::default(), move |_| script.clone()).await).await;
    for event in responses::streamed(&bench.server, json!({})).await {
        bench.check_response_event(&event);
        kinds.push(event["type"].as_str().unwrap().to_owned());
    }
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds, ALL_KINDS);
}

const ALL_KINDS: [&str; 16] = [
    "error",
    "response.completed",
    "response.content_part.added",
    "response.content_part.done",
    "response.created",
    "response.failed",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.in_progress",
    "response.incomplete",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
];

#[tokio::test]
async fn kept_responses_keep_to_both_contracts() {
    let bench = Bench::saying(super::fixture::TEMPLATE, responses::CALLS).await;
    let input = json!([
        {"role": "user", "content": "x"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}],
            "content": [{"type": "reasoning_text", "text": "t"}]},
        {"role": "assistant", "content": "y"},
        {"type": "function_call", "call_id": "c", "name": "time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "noon"},
        {"type": "function_call", "call_id": "d", "name": "time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "d",
            "output": [{"type": "input_text", "text": "noon"}]},
    ]);
    let fields = json!({"input": input, "store": true, "tools": responses::tools()});
    let answer = bench.post("/v1/responses", &request(fields.clone())).await;
    let path = format!("/v1/responses/{}", answer["id"].as_str().unwrap());
    let client = &bench.server.client;
    bench.check_response(&client.get(&path).await.json());
    let items = client.get(&format!("{path}/input_items")).await.json();
    assert_eq!(items["data"].as_array().unwrap().len(), 7);
    bench.check(&items, "ResponseItemList", "ResponseItemList");
    bench.check_error(&client.request("POST", &format!("{path}/cancel")).await, 400);
    bench.own.check(&client.request("DELETE", &path).await.json(), "DeletedResponse");
    bench.check_error(&client.get(&path).await, 404);
    let counted = bench.post("/v1/responses/input_tokens", &request(fields.clone())).await;
    bench.check(&counted, "TokenCountsResource", "InputTokens");
    let compacted = bench.post("/v1/responses/compact", &request(fields)).await;
    bench.own.check(&compacted, "CompactedResponse");
    bench.openai.check(compacted["output"].as_array().unwrap().last().unwrap(), "CompactionBody");
}

#[tokio::test]
async fn embeddings_and_models_keep_to_both_contracts() {
    let bench = Bench::saying(THINKING, "x").await;
    let body =
        |format: &str| json!({"model": "tiny", "input": ["a", "b"], "encoding_format": format});
    let answer = bench.post("/v1/embeddings", &body("float")).await;
    bench.check(&answer, "CreateEmbeddingResponse", "EmbeddingList");
    let mut answer = bench.post("/v1/embeddings", &body("base64")).await;
    bench.own.check(&answer, "EmbeddingList");
    // OpenAI's schema only tells of the other format.
    for entry in answer["data"].as_array_mut().unwrap() {
        assert!(entry["embedding"].is_string());
        entry["embedding"] = json!([0.5]);
    }
    bench.openai.check(&answer, "CreateEmbeddingResponse");
    let models = bench.server.client.get("/v1/models").await.json();
    bench.check(&models, "ListModelsResponse", "ModelList");
    bench.check(&bench.server.client.get("/v1/models/org/alias").await.json(), "Model", "Model");
}

#[tokio::test]
async fn errors_keep_to_both_contracts() {
    let mut setup = Setup::default();
    setup.config =
        ServerConfig { max_body_bytes: Some(1000), max_queued_requests: 0, ..setup.config };
    setup.limits.max_num_seqs = 1;
    let stuck = Script { stuck: true, ..Script::default() };
    let bench = Bench::of(Server::start(setup, move |_| stuck.clone()).await).await;
    let client = &bench.server.client;
    let post = async |fields: Value| client.chat(&chat(fields)).await;
    bench.check_error(&post(json!({"temperature": 9})).await, 400);
    bench.check_error(&post(json!({"model": "other"})).await, 404);
    bench.check_error(&client.get("/nowhere").await, 404);
    bench.check_error(&client.get("/v1/models/%FF").await, 400);
    bench.check_error(&client.request("DELETE", "/v1/responses/%FF").await, 400);
    bench.check_error(&client.get("/v1/completions").await, 405);
    bench.check_error(&post(json!({"deadline_ms": 30})).await, 408);
    bench.check_error(&post(json!({"user": "x".repeat(1000)})).await, 413);
    let text = client.post_bytes("/v1/completions", "text/plain", b"{}".to_vec()).await;
    bench.check_error(&text, 415);
    let waiting = client.open("/v1/chat/completions", &chat(json!({}))).await;
    bench.server.engine.wait_for_requests(2).await;
    bench.check_error(&post(json!({})).await, 429);
    drop(waiting);
    let fail = Some((0, EngineError::StepFailed("broken".to_owned())));
    let script = Script { fail, ..say("x") };
    let mut setup = Setup::default();
    setup.config.api_keys = vec!["k".to_owned()];
    let server = Server::start(setup, move |_| script.clone()).await;
    bench.check_error(&server.client.chat(&chat(json!({}))).await, 401);
    let key = [("x-api-key", "k")];
    let path = "/v1/chat/completions";
    bench.check_error(&server.client.post_with(path, &chat(json!({})), &key).await, 500);
    let server = Server::start(Setup::default(), |_| panic!("the engine dies")).await;
    bench.check_error(&server.client.chat(&chat(json!({}))).await, 503);
}

#[tokio::test]
async fn messages_keep_to_our_document() {
    let bench = Bench::of(messages::saying(messages::CALLS).await).await;
    let stop = json!({"stop_sequences": ["look"]});
    for fields in [json!({}), json!({"tools": messages::tools()}), stop] {
        let mut body = messages::request(fields);
        let answer = bench.post(messages::PATH, &body).await;
        bench.own.check(&answer, "Message");
        body["stream"] = json!(true);
        let streamed = bench.server.client.post(messages::PATH, &body).await;
        for event in messages::events(&streamed.text) {
            bench.own.check(&event, "MessageEvent");
        }
    }
    let counted = bench.post("/v1/messages/count_tokens", &messages::request(json!({}))).await;
    bench.own.check(&counted, "CountedTokens");
    let answer = bench.server.client.post(messages::PATH, &json!({"model": "tiny"})).await;
    assert_eq!(answer.status, 400);
    bench.own.check(&answer.json(), "MessageError");
}

#[tokio::test]
async fn what_is_asked_about_the_server_keeps_to_our_document() {
    let bench = Bench::saying(THINKING, "x").await;
    for (path, schema) in [
        ("/version", "Version"),
        ("/health", "Ready"),
        ("/health/ready", "Ready"),
        ("/health/live", "Live"),
        ("/health/startup", "Started"),
    ] {
        bench.own.check(&bench.server.client.get(path).await.json(), schema);
    }
    for (path, body, schema) in [
        ("/tokenize", json!({"prompt": "a", "return_token_strs": true}), "Tokenized"),
        ("/tokenize", chat(json!({})), "Tokenized"),
        ("/detokenize", json!({"tokens": [1]}), "Detokenized"),
        ("/v1/chat/completions/render", chat(json!({})), "RenderedPrompt"),
    ] {
        bench.own.check(&bench.post(path, &body).await, schema);
    }
}

#[tokio::test]
async fn every_path_in_the_document_is_there() {
    let bench = Bench::saying(THINKING, "x").await;
    let client = &bench.server.client;
    let document = client.get("/openapi.json").await.json();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let answer = client.request(&method.to_uppercase(), &path.replace("{id}", "x")).await;
            let status = answer.status.to_string();
            assert!(operations[method]["responses"].get(&status).is_some(), "{path}: {status}");
            for code in ["route_not_found", "method_not_allowed"] {
                assert!(!answer.text.contains(code), "{method} {path}: {}", answer.text);
            }
        }
    }
}
