//! What programs send that were written for llama.cpp's server: its names for fields, and its fields.

use serde_json::{Value, json};

use super::fixture::{CONTEXT, Server, Setup, chat, completion, say};
use super::messages::request as message;

const BAD: &str = "invalid_request_error";
const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

#[tokio::test]
async fn lengths_have_another_name() {
    let server = Server::saying("x").await;
    for (path, body) in [(CHAT, chat(json!({}))), (COMPLETIONS, completion(json!({})))] {
        let ask = async |name: &str, length: i64| {
            let mut body = body.clone();
            body[name] = json!(length);
            let answer = server.client.post(path, &body).await;
            assert_eq!(answer.status, 200, "{name} {length}: {}", answer.text);
            assert_eq!(answer.header("x-sconce-ignored"), None);
            server.engine.requests().last().unwrap().clone()
        };
        assert_eq!(ask("n_predict", 7).await.stop.max_tokens, 7);
        // No bound, not even the one of completions that don't say.
        let asked = ask("n_predict", -1).await;
        assert_eq!(asked.stop.max_tokens, CONTEXT - asked.prompt_token_ids.len());
        let mut both = body.clone();
        (both["n_predict"], both["max_tokens"]) = (json!(7), json!(7));
        assert_eq!(server.client.post(path, &both).await.status, 200);
        both["max_tokens"] = json!(8);
        let message = server.client.post(path, &both).await.error(400, BAD, Some("n_predict"));
        assert!(message.contains("max_tokens") && message.contains("7 and 8"), "{message}");
    }
    let response = json!({"model": "tiny", "input": "Hi", "n_predict": 7});
    server.client.post("/v1/responses", &response).await.error(400, BAD, Some("n_predict"));
}

#[tokio::test]
async fn penalties_and_budgets_have_other_names() {
    let server = Server::saying("x").await;
    let fields = json!({"repeat_penalty": 1.25, "repeat_last_n": 64, "n_cmpl": 2});
    for (path, body) in [(CHAT, chat(fields.clone())), (COMPLETIONS, completion(fields.clone()))] {
        let answer = server.client.post(path, &body).await;
        assert_eq!(answer.json()["choices"].as_array().unwrap().len(), 2, "{}", answer.text);
        let sampling = server.engine.requests().last().unwrap().sampling.clone();
        assert_eq!((sampling.repetition_penalty, sampling.repeat_last_n), (1.25, Some(64)));
    }
    for (fields, last_n) in [(json!({"repeat_last_n": -1}), None), (json!({}), None)] {
        assert_eq!(server.client.chat(&chat(fields)).await.status, 200);
        assert_eq!(server.engine.requests().last().unwrap().sampling.repeat_last_n, last_n);
    }
    for (fields, param) in [
        (json!({"repeat_penalty": 1.25, "repetition_penalty": 1.5}), "repeat_penalty"),
        (json!({"n_cmpl": 2, "n": 3}), "n_cmpl"),
        (
            json!({"reasoning_budget_tokens": 2, "thinking_token_budget": 3}),
            "reasoning_budget_tokens",
        ),
        (
            json!({"thinking_budget_tokens": 2, "thinking_token_budget": 3}),
            "thinking_budget_tokens",
        ),
        (json!({"repeat_penalty": 0}), "repetition_penalty"),
        (json!({"repeat_last_n": -2}), "repeat_last_n"),
    ] {
        server.client.chat(&chat(fields)).await.error(400, BAD, Some(param));
    }
}

#[tokio::test]
async fn logprobs_are_asked_for_by_their_number_alone() {
    let server = Server::saying("xy").await;
    let body = server.client.chat(&chat(json!({"n_probs": 3}))).await.json();
    let listed = &body["choices"][0]["logprobs"]["content"][1]["top_logprobs"];
    assert_eq!(listed.as_array().unwrap().len(), 3, "{body}");
    let body = server.client.complete(&completion(json!({"n_probs": 3}))).await.json();
    let listed = &body["choices"][0]["logprobs"]["top_logprobs"][1];
    assert_eq!(listed.as_object().unwrap().len(), 3, "{body}");
    let none = server.client.chat(&chat(json!({"n_probs": 0}))).await.json();
    assert_eq!(none["choices"][0]["logprobs"], Value::Null);
    for fields in [
        json!({"n_probs": 3, "logprobs": true, "top_logprobs": 4}),
        json!({"n_probs": 3, "logprobs": false}),
    ] {
        server.client.chat(&chat(fields)).await.error(400, BAD, Some("n_probs"));
    }
}

#[tokio::test]
async fn a_request_can_be_kept_from_the_prompts_of_others() {
    let server = Server::saying("x").await;
    let ask = async |fields: Value| {
        assert_eq!(server.client.chat(&chat(fields)).await.status, 200);
        server.engine.requests().last().unwrap().cache_salt.clone()
    };
    assert_eq!(ask(json!({"cache_prompt": true})).await, None);
    let first = ask(json!({"cache_prompt": false})).await;
    assert!(first.is_some());
    assert_ne!(ask(json!({"cache_prompt": false, "cache_salt": "mine"})).await, first);
    let body = message(json!({"cache_prompt": false}));
    assert_eq!(server.client.post("/v1/messages", &body).await.status, 200);
    assert!(server.engine.requests().last().unwrap().cache_salt.is_some());
}

#[tokio::test]
async fn biases_may_be_pairs() {
    let server = Server::saying("x").await;
    let fields = json!({"logit_bias": [[7, 1.5], ["8", -2], [9, false]]});
    assert_eq!(server.client.chat(&chat(fields)).await.status, 200);
    let asked = server.engine.requests().last().unwrap().sampling.logit_bias.clone();
    assert_eq!(asked, [(7, 1.5), (8, -2.0), (9, f32::NEG_INFINITY)]);
    let words = json!({"logit_bias": {"one": 1, "7": 1, "two": 2}});
    let message = server.client.chat(&chat(words)).await.error(400, BAD, Some("logit_bias"));
    assert!(message.contains("\"one\", \"two\" are not token ids"), "{message}");
    for bias in
        [json!([["a word", 1]]), json!([[7, true]]), json!([[7]]), json!([[7, 101]]), json!("7")]
    {
        let answer = server.client.chat(&chat(json!({"logit_bias": bias}))).await;
        let param = answer.json()["error"]["param"].as_str().unwrap().to_owned();
        answer.error(400, BAD, Some(&param));
        assert!(param.starts_with("logit_bias"), "{param}");
    }
}

#[tokio::test]
async fn a_seed_of_minus_one_is_drawn() {
    let server = Server::saying("x").await;
    let ask = async || server.client.chat(&chat(json!({"seed": -1}))).await.json()["seed"].clone();
    let (first, second) = (ask().await, ask().await);
    assert_ne!(first, -1);
    assert_ne!(first, second);
}

#[tokio::test]
async fn reasoning_may_stay_in_the_text() {
    let server = Server::saying("<think>Hm.</think>Yes.").await;
    let ask = async |fields: Value| {
        server.client.chat(&chat(fields)).await.json()["choices"][0]["message"]["content"].clone()
    };
    let whole = ask(json!({"separate_reasoning": false})).await;
    assert_eq!(ask(json!({"reasoning_format": "none"})).await, whole);
    for (fields, param) in [
        (json!({"reasoning_format": "none", "separate_reasoning": true}), "reasoning_format"),
        (json!({"reasoning_format": "deepseek-legacy"}), "reasoning_format"),
    ] {
        server.client.chat(&chat(fields)).await.error(400, BAD, Some(param));
    }
}

#[tokio::test]
async fn times_are_told_with_every_chunk() {
    let server = Server::saying("abc").await;
    for (path, body, opening) in
        [(CHAT, chat(json!({})), 1), (COMPLETIONS, completion(json!({})), 0)]
    {
        let ask = async |asked: bool| {
            let mut body = body.clone();
            (body["stream"], body["timings_per_token"]) = (json!(true), json!(asked));
            server.client.post(path, &body).await.chunks()
        };
        let chunks = ask(true).await;
        for (at, chunk) in chunks.iter().enumerate() {
            assert_eq!(chunk["timings"].is_object(), at >= opening, "{at}: {chunk}");
        }
        let last = &chunks.last().unwrap()["timings"];
        assert_eq!(last["predicted_n"], 4, "three tokens and the end");
        assert!(last["prompt_n"].as_u64().unwrap() > 0 && last["prompt_ms"].is_number(), "{last}");
        let told = ask(false).await.iter().filter(|chunk| chunk["timings"].is_object()).count();
        assert_eq!(told, 1);
    }
}

#[tokio::test]
async fn what_would_change_an_answer_is_refused_by_name() {
    let server = Server::saying("x").await;
    for (name, neutral, value) in [
        ("dynatemp_range", json!(0.0), json!(0.5)),
        ("mirostat", json!(0), json!(2)),
        ("min_keep", json!(0), json!(2)),
        ("n_indent", json!(0), json!(4)),
        ("t_max_predict_ms", json!(-1), json!(500)),
        ("post_sampling_probs", json!(false), json!(true)),
        ("lora", json!([]), json!([{"id": 0, "scale": 0.5}])),
        ("response_fields", json!([]), json!(["content"])),
        ("adaptive_target", json!(-1.0), json!(0.5)),
        ("grammar_lazy", json!(false), json!(true)),
        ("parse_tool_calls", json!(true), json!(false)),
    ] {
        for (path, body) in [(CHAT, chat(json!({}))), (COMPLETIONS, completion(json!({})))] {
            let mut body = body;
            body[name] = neutral.clone();
            let answer = server.client.post(path, &body).await;
            assert_eq!((answer.status, answer.header("x-sconce-ignored")), (200, None), "{name}");
            body[name] = value.clone();
            server.client.post(path, &body).await.error(400, BAD, Some(name));
        }
    }
    let samplers = chat(json!({"samplers": ["top_k", "temperature"]}));
    server.client.chat(&samplers).await.error(400, BAD, Some("samplers"));
}

#[tokio::test]
async fn what_changes_no_answer_is_named() {
    let server = Server::saying("x").await;
    for (name, value) in [
        ("id_slot", json!(-1)),
        ("mirostat_tau", json!(5.0)),
        ("mirostat_eta", json!(0.1)),
        ("dynatemp_exponent", json!(1.0)),
        ("n_keep", json!(4)),
        ("n_discard", json!(0)),
        ("n_cache_reuse", json!(0)),
        ("return_tokens", json!(true)),
        ("return_progress", json!(true)),
        ("sse_ping_interval", json!(5)),
        ("backend_sampling", json!(true)),
        ("verbose", json!(true)),
        ("__verbose", json!(true)),
    ] {
        let mut body = chat(json!({}));
        body[name] = value;
        let answer = server.client.chat(&body).await;
        assert_eq!((answer.status, answer.header("x-sconce-ignored")), (200, Some(name)));
    }
}

#[tokio::test]
async fn pages_of_this_machine_may_call_under_one_word() {
    let mut setup = Setup::default();
    setup.config.cors_origins = vec!["localhost".to_owned(), "https://app.example".to_owned()];
    let server = Server::start(setup, |_| say("x")).await;
    let allowed = async |origin: &str| {
        let answer = server.client.get_with("/v1/models", &[("origin", origin)]).await;
        answer.header("access-control-allow-origin").map(str::to_owned)
    };
    for origin in [
        "http://localhost",
        "http://localhost:8080",
        "http://127.0.0.1:3000",
        "http://[::1]:3000",
        "https://app.example",
    ] {
        assert_eq!(allowed(origin).await.as_deref(), Some(origin));
    }
    for origin in
        ["http://notlocalhost", "http://localhost.evil.example", "file://localhost", "null"]
    {
        assert_eq!(allowed(origin).await, None, "{origin}");
    }
}
