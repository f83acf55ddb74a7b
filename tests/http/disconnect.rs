//! A client that goes away: whatever it asked for is aborted, in every state.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::client::read_until;
use super::fake_engine::Script;
use super::fixture::{Server, Setup, chat, completion, endless};

fn stuck() -> Script {
    Script { stuck: true, ..Script::default() }
}

async fn aborts_after_hanging_up(script: Script, body: Value, path: &str, sequences: usize) {
    let server = Server::start(Setup::default(), move |_| script.clone()).await;
    let socket = server.client.open(path, &body).await;
    server.engine.wait_for_requests(sequences).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(server.engine.aborts().is_empty());
    drop(socket);
    server.engine.wait_for_aborts(sequences).await;
    let mut ids: Vec<_> = server.engine.requests().iter().map(|request| request.id).collect();
    let mut aborted = server.engine.aborts();
    ids.sort_unstable();
    aborted.sort_unstable();
    assert_eq!(ids, aborted);
    let metrics = server.client.get("/metrics").await.text;
    let expected =
        format!("sconce:aborted_requests_total{{model_name=\"tiny\",engine=\"0\"}} {sequences}");
    assert!(metrics.contains(&expected), "{metrics}");
}

#[tokio::test]
async fn a_running_answer_is_aborted() {
    let body = chat(json!({"max_tokens": 400}));
    let script = Script { delay: Duration::from_millis(20), ..endless("ab") };
    aborts_after_hanging_up(script, body, "/v1/chat/completions", 1).await;
}

#[tokio::test]
async fn a_queued_answer_is_aborted() {
    aborts_after_hanging_up(stuck(), chat(json!({"n": 3})), "/v1/chat/completions", 3).await;
}

#[tokio::test]
async fn a_running_stream_is_aborted() {
    let body = completion(json!({"stream": true, "prompt": ["a", "b"], "max_tokens": 400}));
    let script = Script { delay: Duration::from_millis(20), ..endless("ab") };
    aborts_after_hanging_up(script, body, "/v1/completions", 2).await;
}

#[tokio::test]
async fn a_queued_stream_is_aborted() {
    let body = chat(json!({"stream": true}));
    aborts_after_hanging_up(stuck(), body, "/v1/chat/completions", 1).await;
}

#[tokio::test]
async fn a_stream_whose_headers_were_sent_is_aborted_while_it_waits() {
    let setup = Setup { keep_alive: Duration::from_millis(20), ..Setup::default() };
    let server = Server::start(setup, |_| stuck()).await;
    let mut socket =
        server.client.open("/v1/chat/completions", &chat(json!({"stream": true}))).await;
    read_until(&mut socket, ": keep-alive").await;
    drop(socket);
    server.engine.wait_for_aborts(1).await;
}

#[tokio::test]
async fn a_half_read_stream_is_aborted() {
    let server = Server::start(Setup::default(), |_| endless("ab")).await;
    let mut socket =
        server.client.open("/v1/chat/completions", &chat(json!({"stream": true}))).await;
    read_until(&mut socket, "\"content\":\"b\"").await;
    socket.shutdown().await.unwrap();
    drop(socket);
    server.engine.wait_for_aborts(1).await;
}

#[tokio::test]
async fn an_abandoned_request_gives_back_its_place() {
    let mut setup = Setup::default();
    setup.config.max_queued_requests = 0;
    setup.limits.max_num_seqs = 1;
    let server = Server::start(setup, |_| stuck()).await;
    let socket = server.client.open("/v1/chat/completions", &chat(json!({}))).await;
    server.engine.wait_for_requests(1).await;
    let deadline = chat(json!({"deadline_ms": 50}));
    assert_eq!(server.client.chat(&deadline).await.status, 429);
    drop(socket);
    server.engine.wait_for_aborts(1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(server.client.chat(&deadline).await.status, 408);
}
