//! A server for tests of the clients: speaks the two streaming endpoints and misbehaves on demand.
//! The name of the model in a request says how it answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::StreamExt;
use serde_json::{Value, json};

/// What the server saw.
#[derive(Default)]
pub(crate) struct Seen {
    /// Bodies of generation requests, in order.
    pub(crate) bodies: Mutex<Vec<Value>>,
    running: AtomicUsize,
    most_running: AtomicUsize,
}

impl Seen {
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    pub(crate) fn most_running(&self) -> usize {
        self.most_running.load(Ordering::SeqCst)
    }
}

/// Counts a stream while it is alive.
struct Running(Arc<Seen>);

impl Running {
    fn new(seen: &Arc<Seen>) -> Self {
        let now = seen.running.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most_running.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(seen))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Starts on a free loopback port and lives as long as the test's runtime.
pub(crate) async fn start() -> (String, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let router = Router::new()
        .route("/v1/models", get(|| async { Json(models()) }))
        .route("/tokenize", post(tokenize))
        .route("/v1/completions", post(generate))
        .route("/v1/chat/completions", post(generate))
        .with_state(Arc::clone(&seen));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, seen)
}

/// Waits until a condition holds; panics after five seconds.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within 5 s");
}

fn models() -> Value {
    json!({"object": "list", "data": [
        {"id": "steady", "object": "model", "max_model_len": 2048},
        {"id": "full", "object": "model"},
    ]})
}

/// Every byte is a token.
async fn tokenize(Json(body): Json<Value>) -> Json<Value> {
    let tokens: Vec<u8> = body["prompt"].as_str().unwrap_or("").bytes().collect();
    Json(json!({"count": tokens.len(), "tokens": tokens, "max_model_len": 2048}))
}

async fn generate(State(seen): State<Arc<Seen>>, request: Request) -> Response {
    let is_chat = request.uri().path().contains("chat");
    let bytes = axum::body::to_bytes(request.into_body(), 1 << 24).await.unwrap();
    let body: Value = serde_json::from_slice(&bytes).unwrap();
    let model = body["model"].as_str().unwrap_or("").to_owned();
    let max_tokens = body["max_tokens"].as_u64().unwrap_or(8);
    seen.bodies.lock().unwrap().push(body);
    let frames = match model.as_str() {
        "full" => {
            let error = json!({"error": {"message": "the queue is full", "type": "x"}});
            return (StatusCode::TOO_MANY_REQUESTS, Json(error)).into_response();
        }
        "not-a-stream" => return Json(json!({"choices": []})).into_response(),
        "breaks" => frames(is_chat, 2, &["{\"error\":{\"message\":\"oops\",\"type\":\"boom\"}}"]),
        "cut" => frames(is_chat, 2, &[]),
        "endless" => frames(is_chat, 1_000_000, &[]),
        _ => {
            let usage = json!({"choices": [], "usage": {"prompt_tokens": 7,
                "completion_tokens": max_tokens,
                "prompt_tokens_details": {"cached_tokens": 3}}});
            let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
            frames(is_chat, max_tokens, &[&last.to_string(), &usage.to_string(), "[DONE]"])
        }
    };
    let running = Running::new(&seen);
    let body = futures::stream::iter(frames).then(move |frame| {
        let _alive = &running;
        async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Ok::<_, std::convert::Infallible>(frame)
        }
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(body)).into_response()
}

/// A comment, `count` frames of text and what follows them, in CRLF lines.
fn frames(
    is_chat: bool,
    count: u64,
    last: &[&str],
) -> impl Iterator<Item = String> + Send + 'static {
    let last: Vec<String> = last.iter().map(|frame| format!("data: {frame}\r\n\r\n")).collect();
    let text = move |index| {
        let text = format!("t{index} ");
        let choice = if is_chat {
            json!({"index": 0, "delta": {"content": text}, "finish_reason": null})
        } else {
            json!({"index": 0, "text": text, "finish_reason": null})
        };
        format!("data: {}\r\n\r\n", json!({"choices": [choice], "usage": null}))
    };
    std::iter::once(": hello\r\n\r\n".to_owned()).chain((0..count).map(text)).chain(last)
}
