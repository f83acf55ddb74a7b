//! Too many requests, keys, and going down.

use std::time::Duration;

use sconce::http::Loading;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::client::{frames, read_until};
use super::fake_engine::Script;
use super::fixture::{Server, Setup, bytes, chat, completion, endless, say};

#[tokio::test]
async fn one_request_too_many_is_told_to_come_back() {
    let mut setup = Setup::default();
    setup.limits.max_num_seqs = 1;
    setup.config.max_queued_requests = 2;
    let server = Server::start(setup, |_| Script { stuck: true, ..Script::default() }).await;
    let path = "/v1/chat/completions";
    let first = server.client.open(path, &chat(json!({"n": 2}))).await;
    server.engine.wait_for_requests(2).await;
    let refused = server.client.chat(&chat(json!({"n": 2}))).await;
    assert!(refused.error(429, "rate_limit_error", None).contains("no more than 3"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    let _second = server.client.open(path, &chat(json!({"stream": true}))).await;
    server.engine.wait_for_requests(3).await;
    assert_eq!(server.client.chat(&chat(json!({}))).await.status, 429);
    assert_eq!(server.client.get("/health").await.status, 200);
    let metrics = server.client.get("/metrics").await.text;
    assert!(
        metrics.contains("sconce:admission_rejections_total{model_name=\"tiny\",engine=\"0\"} 2")
    );
    drop(first);
    server.engine.wait_for_aborts(2).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(server.client.chat(&chat(json!({"deadline_ms": 50}))).await.status, 408);
}

#[tokio::test]
async fn every_route_but_health_needs_a_key() {
    let mut setup = Setup::default();
    setup.config.api_keys = vec!["sk-one".to_owned(), "sk-two".to_owned()];
    let server = Server::start(setup, |_| say("x")).await;
    for path in ["/health", "/health/live", "/health/ready"] {
        assert_eq!(server.client.get(path).await.status, 200);
    }
    for path in ["/v1/models", "/v1/models/tiny", "/metrics", "/version", "/nowhere", "/healthy"] {
        let answer = server.client.get(path).await;
        answer.error(401, "authentication_error", None);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    let path = "/v1/completions";
    for value in ["Bearer sk-three", "Bearer ", "Bearer sk-on", "Basic sk-one", "sk-one"] {
        let headers = [("authorization", value)];
        let answer = server.client.post_with(path, &completion(json!({})), &headers).await;
        answer.error(401, "authentication_error", None);
    }
    for value in ["Bearer sk-one", "bearer sk-two"] {
        let headers = [("authorization", value)];
        let answer = server.client.post_with(path, &completion(json!({})), &headers).await;
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test]
async fn running_requests_finish_while_new_ones_are_refused() {
    let tokens = bytes(&"ab".repeat(20));
    let delay = Duration::from_millis(15);
    let mut server = Server::start(Setup::default(), move |_| Script {
        tokens: tokens.clone(),
        delay,
        ..Script::default()
    })
    .await;
    let mut socket =
        server.client.open("/v1/chat/completions", &chat(json!({"stream": true}))).await;
    read_until(&mut socket, "\"content\":\"b\"").await;
    server.stop();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let ready = server.client.get("/health/ready").await;
    assert!(ready.error(503, "unavailable_error", None).contains("shutting down"));
    assert_eq!(server.client.get("/health/live").await.status, 200);
    let refused = server.client.chat(&chat(json!({}))).await;
    refused.error(503, "unavailable_error", None);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let rest = read_until(&mut socket, "[DONE]").await;
    assert!(rest.contains("\"finish_reason\":\"stop\""));
    assert_eq!(server.stopped().await.cut, 0);
}

#[tokio::test]
async fn what_outlasts_the_drain_is_cut_and_counted() {
    let mut setup = Setup::default();
    setup.config.drain_timeout = Duration::from_millis(100);
    let mut server = Server::start(setup, |_| endless("ab")).await;
    let body = chat(json!({"stream": true, "ignore_eos": true, "n": 2}));
    let mut stream = server.client.open("/v1/chat/completions", &body).await;
    let mut whole = server.client.open("/v1/chat/completions", &chat(json!({}))).await;
    server.engine.wait_for_requests(3).await;
    read_until(&mut stream, "\"content\":\"b\"").await;
    server.stop();
    let engine = server.engine.clone();
    assert_eq!(server.stopped().await.cut, 3);
    engine.wait_for_aborts(3).await;
    let rest = read_until(&mut stream, "[DONE]").await;
    assert!(rest.contains("\"type\":\"unavailable_error\""), "{rest}");
    let mut answer = String::new();
    whole.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
}

/// What each protocol says where a stream is cut, and nothing behind it.
#[tokio::test]
async fn cut_streams_end_with_an_error_of_their_protocol() {
    let mut setup = Setup::default();
    setup.config.drain_timeout = Duration::from_millis(100);
    // However slow the machine is, none of them ends by itself.
    let slow = || Script { delay: Duration::from_millis(50), ..endless("ab") };
    let mut server = Server::start(setup, move |_| slow()).await;
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let requests = [
        ("/v1/chat/completions", chat(json!({"stream": true})), "\"type\":\"unavailable_error\""),
        (
            "/v1/completions",
            completion(json!({"stream": true, "max_tokens": 400})),
            "\"type\":\"unavailable_error\"",
        ),
        (
            "/v1/responses",
            json!({"model": "tiny", "input": "Hi", "stream": true}),
            "event: response.failed\n",
        ),
        (
            "/v1/messages",
            json!({"model": "tiny", "max_tokens": 400, "messages": messages, "stream": true}),
            "event: error\n",
        ),
        ("/api/chat", json!({"model": "tiny", "messages": messages}), "{\"error\":"),
    ];
    let mut streams = Vec::new();
    for (path, body, expected) in requests {
        let mut body = body;
        body["ignore_eos"] = json!(path.starts_with("/v1/c"));
        if body["ignore_eos"] == false {
            body.as_object_mut().unwrap().remove("ignore_eos");
        }
        let mut stream = server.client.open(path, &body).await;
        read_until(&mut stream, "a").await;
        streams.push((path, stream, expected));
    }
    server.engine.wait_for_requests(streams.len()).await;
    server.stop();
    assert_eq!(server.stopped().await.cut, streams.len());
    for (path, mut stream, expected) in streams {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        assert!(rest.contains(expected), "{path}: {rest}");
        assert!(rest.contains("shutting down"), "{path}: {rest}");
        // The last chunk of the body, so no client takes it for a broken connection.
        assert!(rest.ends_with("\r\n0\r\n\r\n"), "{path}: {rest}");
    }
}

#[tokio::test]
async fn a_server_that_leaves_is_not_ready_and_still_takes_requests() {
    let mut setup = Setup::default();
    setup.config.drain_delay = Duration::from_hours(1);
    let mut server = Server::start(setup, |_| say("x")).await;
    let kept = server.client.get("/health/ready").await;
    assert_eq!((kept.status, kept.header("connection")), (200, None));
    server.stop();
    let mut ready = server.client.get("/health/ready").await;
    while ready.status == 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        ready = server.client.get("/health/ready").await;
    }
    assert!(ready.error(503, "unavailable_error", None).contains("shutting down"));
    let answer = server.client.chat(&chat(json!({}))).await;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert_eq!(server.client.get("/health/live").await.status, 200);
}

#[tokio::test]
async fn requests_are_refused_once_the_delay_is_over() {
    let mut setup = Setup::default();
    setup.config.drain_delay = Duration::from_millis(300);
    let mut server = Server::start(setup, |_| endless("ab")).await;
    let mut stream =
        server.client.open("/v1/chat/completions", &chat(json!({"stream": true}))).await;
    read_until(&mut stream, "\"content\":\"b\"").await;
    server.stop();
    let mut answer = server.client.chat(&chat(json!({"max_tokens": 1}))).await;
    while answer.status == 200 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        answer = server.client.chat(&chat(json!({"max_tokens": 1}))).await;
    }
    answer.error(503, "unavailable_error", None);
    drop(stream);
    assert_eq!(server.stopped().await.cut, 0);
}

#[tokio::test]
async fn while_the_model_is_loaded_the_process_is_alive_and_not_ready() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let client = super::client::Client::new(address);
    let copy = TcpListener::from_std(listener.try_clone().unwrap()).unwrap();
    let loading = Loading::start(copy.into(), 100);
    assert_eq!(client.get("/health/live").await.status, 200);
    for path in ["/health/startup", "/health/ready", "/health", "/v1/models"] {
        let answer = client.get(path).await;
        assert!(answer.error(503, "unavailable_error", None).contains("is being loaded"));
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    drop(loading);
    let server = Server::start_on(Some(listener), Setup::default(), |_| say("x")).await;
    for path in ["/health/startup", "/health/ready", "/v1/models"] {
        // The one before may still take connections, and ends those that it has.
        let url = format!("http://{address}{path}");
        while !reqwest::get(&url).await.is_ok_and(|answer| answer.status() == 200) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    drop(server);
}

#[tokio::test]
async fn an_idle_server_stops_at_once() {
    let mut server = Server::saying("x").await;
    assert_eq!(server.client.chat(&chat(json!({}))).await.status, 200);
    server.stop();
    let stopped = tokio::time::timeout(Duration::from_secs(1), server.stopped()).await;
    assert_eq!(stopped.unwrap().cut, 0);
}

#[tokio::test]
async fn many_clients_at_once_get_their_own_answers() {
    let server = Server::start(Setup::default(), |request| {
        let tokens = request.prompt_token_ids.clone();
        Script { tokens, delay: Duration::from_millis(1), ..Script::default() }
    })
    .await;
    let requests = (0..32).map(|number| {
        let client = &server.client;
        async move {
            let prompt = format!("client {number}");
            let stream = number % 2 == 0;
            let answer =
                client.complete(&completion(json!({"prompt": prompt, "stream": stream}))).await;
            let text: String = if stream {
                let chunks = frames(&answer.text);
                chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect()
            } else {
                answer.json()["choices"][0]["text"].as_str().unwrap().to_owned()
            };
            assert_eq!(text, prompt);
        }
    });
    futures::future::join_all(requests).await;
}
