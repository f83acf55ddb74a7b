//! Models, health, metrics, version, tokenizing, and headers of every response.

use std::time::Duration;

use sconce::engine::EngineHandle;
use serde_json::{Value, json};

use super::fake_engine::Script;
use super::fixture::{CONTEXT, HELLO, IM_START, Server, Setup, bytes, chat, completion, say};

#[tokio::test]
async fn models_are_listed_under_all_their_names() {
    let server = Server::saying("x").await;
    let list = server.client.get("/v1/models").await.json();
    assert_eq!(list["object"], "list");
    let entry = &list["data"][1];
    let expected = json!({"id": "org/alias", "object": "model", "created": entry["created"],
        "owned_by": "sconce", "root": "tiny", "parent": null, "max_model_len": CONTEXT});
    assert_eq!(entry, &expected);
    assert_eq!(list["data"].as_array().unwrap().len(), 2);
    assert_eq!(server.client.get("/v1/models/org/alias").await.json(), expected);
    assert_eq!(server.client.get("/v1/models/org%2Falias").await.json(), expected);
    let missing = server.client.get("/v1/models/other").await;
    assert!(missing.error(404, "invalid_request_error", Some("model")).contains("other"));
}

#[tokio::test]
async fn readiness_follows_the_engine() {
    let server = Server::saying("x").await;
    for path in ["/health", "/health/ready", "/health/live", "/health/startup"] {
        assert_eq!(server.client.get(path).await.status, 200);
    }
    let server = Server::start(Setup::default(), |_| panic!("the engine dies")).await;
    let answer = server.client.chat(&chat(json!({}))).await;
    answer.error(503, "unavailable_error", None);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let ready = server.client.get("/health").await;
    assert!(ready.error(503, "unavailable_error", None).contains("engine"));
    assert_eq!(ready.header("retry-after"), Some("1"));
    let live = server.client.get("/health/live").await;
    assert!(live.error(503, "unavailable_error", None).contains("the engine is not running"));
    assert_eq!(server.client.get("/health/startup").await.status, 200);
    let streamed = server.client.chat(&chat(json!({"stream": true}))).await;
    streamed.error(503, "unavailable_error", None);
    let _: &EngineHandle = &server.engine.handle;
}

#[tokio::test]
async fn a_stuck_step_ends_readiness_and_liveness_with_the_reason() {
    let mut setup = Setup::default();
    setup.config.step_timeout = Some(Duration::from_millis(20));
    let server = Server::start(setup, |_| say("x")).await;
    assert_eq!(server.client.get("/health/live").await.status, 200);
    server.engine.handle.begin_step();
    tokio::time::sleep(Duration::from_millis(60)).await;
    for path in ["/health/live", "/health/ready"] {
        let answer = server.client.get(path).await;
        let reason = answer.error(503, "unavailable_error", None);
        assert!(reason.contains("the engine's step has been running for"), "{reason}");
    }
    let mut setup = Setup::default();
    setup.config.step_timeout = None;
    let server = Server::start(setup, |_| say("x")).await;
    server.engine.handle.begin_step();
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(server.client.get("/health/live").await.status, 200);
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let server = Server::start(Setup::default(), |_| say("abc")).await;
    server.client.chat(&chat(json!({"n": 2}))).await;
    server.client.complete(&completion(json!({"max_tokens": 2}))).await;
    server.client.complete(&completion(json!({"temperature": 9}))).await;
    let answer = server.client.get("/metrics").await;
    assert!(answer.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    let prompt_tokens = server.engine.requests()[0].prompt_token_ids.len() + 2;
    let labels = "model_name=\"tiny\",engine=\"0\"";
    for line in [
        format!("vllm:prompt_tokens_total{{{labels}}} {prompt_tokens}"),
        format!("vllm:generation_tokens_total{{{labels}}} 10"),
        format!("vllm:request_success_total{{finished_reason=\"stop\",{labels}}} 2"),
        format!("vllm:request_success_total{{finished_reason=\"length\",{labels}}} 1"),
        format!("vllm:time_to_first_token_seconds_count{{{labels}}} 3"),
        format!("vllm:inter_token_latency_seconds_count{{{labels}}} 7"),
        format!("vllm:e2e_request_latency_seconds_count{{{labels}}} 3"),
        format!("vllm:request_prompt_tokens_count{{{labels}}} 2"),
        format!("vllm:request_generation_tokens_sum{{{labels}}} 10"),
        "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} 1"
            .to_owned(),
        "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"4xx\"} 1"
            .to_owned(),
    ] {
        assert!(answer.text.contains(&format!("{line}\n")), "{line} missing in {}", answer.text);
    }
}

#[tokio::test]
async fn the_version_names_features() {
    let server = Server::saying("x").await;
    let body = server.client.get("/version").await.json();
    assert_eq!(body, json!({"version": env!("CARGO_PKG_VERSION"), "features": ["cpu"]}));
}

#[tokio::test]
async fn browsers_get_pages_and_programs_json() {
    let server = Server::saying("x").await;
    let root = server.client.get("/").await;
    assert_eq!(
        (root.json()["server"].as_str(), root.header("vary")),
        (Some("sconce"), Some("accept"))
    );
    let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let page = server.client.get_with("/", &browser).await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    let etag = page.header("etag").unwrap();
    let known = [("accept", "text/html"), ("if-none-match", etag)];
    let again = server.client.get_with("/", &known).await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    let script = server.client.get("/page/chat.js").await;
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    let worker =
        server.client.get("/page/mcp_worker.js?origin=http%3A%2F%2F127.0.0.1%3A3001").await;
    let policy = Some("default-src 'none'; connect-src http://127.0.0.1:3001");
    assert_eq!(worker.header("content-security-policy"), policy);
    let injected = server.client.get("/page/mcp_worker.js?origin=http://a;script-src").await;
    assert_eq!(injected.status, 400);
    assert_eq!(server.client.get("/page/none.js").await.status, 404);
    assert_eq!(server.client.get("/status").await.status, 200);
}

#[tokio::test]
async fn the_guide_is_a_page_for_browsers_and_markdown_for_programs() {
    let server = Server::saying("x").await;
    let index = server.client.get("/docs").await;
    assert_eq!(index.header("content-type"), Some("text/markdown; charset=utf-8"));
    assert!(index.text.starts_with("# Guide") && index.header("vary") == Some("accept"));
    assert_eq!(server.client.get("/docs/").await.text, index.text);
    let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    for (name, text) in sconce::guide::PAGES {
        let page = server.client.get(&format!("/docs/{name}")).await;
        assert_eq!((page.status, page.text.as_str()), (200, *text));
    }
    for path in ["/docs", "/docs/flags", "/docs/flags.md"] {
        let page = server.client.get_with(path, &browser).await;
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
        let etag = server.client.get(path).await.header("etag").unwrap().to_owned();
        let known = [("if-none-match", etag.as_str())];
        assert_eq!(server.client.get_with(path, &known).await.status, 304, "{path}");
        let other = [("accept", "text/html"), ("if-none-match", etag.as_str())];
        assert_eq!(server.client.get_with(path, &other).await.status, 200, "{path}");
    }
    for headers in [&[][..], &browser] {
        assert_eq!(server.client.get_with("/docs/none", headers).await.status, 404);
    }
}

#[tokio::test]
async fn pages_need_no_key() {
    let mut setup = Setup::default();
    setup.config.api_keys = vec!["k".to_owned()];
    let server = Server::start(setup, |_| say("x")).await;
    let page = server.client.get_with("/", &[("accept", "text/html")]).await;
    assert_eq!(page.status, 200);
    for (path, status) in [
        ("/page/chat.js", 200),
        ("/status", 200),
        ("/docs", 200),
        ("/docs/flags", 200),
        ("/", 401),
        ("/metrics", 401),
    ] {
        assert_eq!(server.client.get(path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn text_becomes_tokens_and_back() {
    let server = Server::saying("x").await;
    let body = json!({"prompt": "é<|im_start|>", "return_token_strs": true});
    let answer = server.client.post("/tokenize", &body).await.json();
    let expected = json!({"count": 3, "max_model_len": CONTEXT, "tokens": [0xc3, 0xa9, IM_START],
        "token_strs": ["Ã", "©", "<|im_start|>"]});
    assert_eq!(answer, expected);
    let answer = server.client.post("/tokenize", &json!({"content": "ab"})).await.json();
    assert_eq!((&answer["tokens"], &answer["token_strs"]), (&json!(bytes("ab")), &Value::Null));
    let messages = chat(json!({}));
    let answer = server.client.post("/tokenize", &messages).await.json();
    let rendered = server.client.post("/v1/chat/completions/render", &messages).await.json();
    assert_eq!(answer["tokens"], rendered["prompt_token_ids"]);
    let answer = server.client.post("/detokenize", &json!({"tokens": [HELLO, 0xc3, 0xa9]})).await;
    assert_eq!(answer.json(), json!({"prompt": "helloé", "content": "helloé"}));
    for (path, body, param) in [
        ("/tokenize", json!({}), "prompt"),
        ("/tokenize", json!({"prompt": "x", "messages": []}), "prompt"),
        ("/tokenize", json!({"prompt": 3}), "prompt"),
        ("/detokenize", json!({}), "tokens"),
        ("/detokenize", json!({"tokens": [1000]}), "tokens"),
        ("/detokenize", json!({"tokens": "x"}), "tokens"),
    ] {
        let answer = server.client.post(path, &body).await;
        answer.error(400, "invalid_request_error", Some(param));
    }
    let beside = json!({"prompt": "x", "tools": [1], "add_special_tokens": true});
    let answer = server.client.post("/tokenize", &beside).await;
    assert_eq!((answer.status, answer.header("x-sconce-ignored")), (200, Some("tools")));
    let unknown = json!({"prompt": "x", "model": "other"});
    let answer = server.client.post("/tokenize", &unknown).await;
    answer.error(404, "invalid_request_error", Some("model"));
}

#[tokio::test]
async fn every_response_has_a_request_id() {
    let server = Server::saying("x").await;
    let given = [("x-request-id", "abc-123")];
    let answer = server.client.post_with("/v1/completions", &completion(json!({})), &given).await;
    assert_eq!(answer.header("x-request-id"), Some("abc-123"));
    let bad = [("x-request-id", "a b")];
    let answer = server.client.post_with("/nowhere", &json!({}), &bad).await;
    assert_eq!(answer.header("x-request-id").unwrap().len(), 32);
    let first = server.client.get("/health").await;
    let second = server.client.get("/health").await;
    assert_ne!(first.header("x-request-id"), second.header("x-request-id"));
}

#[tokio::test]
async fn browsers_may_call_only_from_named_origins() {
    let mut setup = Setup::default();
    setup.config.cors_origins = vec!["https://app.example".to_owned()];
    setup.config.api_keys = vec!["k".to_owned()];
    let server = Server::start(setup, |_| Script::default()).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let preflight = async |origin: &str| {
        let url = server.client.url("/v1/chat/completions");
        let request = http.request(reqwest::Method::OPTIONS, url).header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        let headers = "authorization,x-stainless-lang";
        let response = request.header("access-control-request-headers", headers).send().await;
        let response = response.unwrap();
        let header = |name: &str| {
            let value = response.headers().get(format!("access-control-allow-{name}"));
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        (response.status().as_u16(), header("origin"), header("headers"))
    };
    let (status, origin, headers) = preflight("https://app.example").await;
    assert_eq!((status, origin.as_deref()), (200, Some("https://app.example")));
    assert_eq!(headers.as_deref(), Some("authorization,x-stainless-lang"));
    assert_eq!(preflight("https://evil.example").await.1, None);
}

#[tokio::test]
async fn invented_methods_make_no_labels() {
    let server = Server::saying("x").await;
    assert_eq!(server.client.request("BREW", "/v1/models").await.status, 405);
    let metrics = server.client.get("/metrics").await.text;
    assert!(metrics.contains("handler=\"/v1/models\",method=\"other\",status=\"4xx\"} 1\n"));
    assert!(!metrics.contains("BREW"));
}
