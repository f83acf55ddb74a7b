//! What is answered while the model is loaded: that the process is alive, and not yet ready.

use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::json;
use tokio::sync::oneshot;

use super::connections::{self, Bounds};
use super::error::ApiError;
use super::listener::Listener;

/// How long who connected before the model was there may ask: by then a client has sent its request.
const LINGER: Duration = Duration::from_secs(2);

/// Answers on an address until it is ended or dropped.
#[derive(Debug)]
pub struct Loading {
    stop: oneshot::Sender<()>,
    closed: oneshot::Receiver<()>,
}

impl Loading {
    /// Answers connections to `listener`: `/health/live` with 200, everything else with 503.
    pub fn start(listener: Listener, max_connections: usize) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let router = Router::new().fallback(answer);
        let stopped = async move { drop(stopped.await) };
        let bounds = Bounds { linger: LINGER, ..Bounds::new(max_connections, None) };
        let (tell, closed) = oneshot::channel::<()>();
        // Who has dropped this doesn't wait.
        let tell = move || {
            let _ = tell.send(());
        };
        tokio::spawn(connections::serve_telling(listener, router, bounds, stopped, tell));
        Self { stop, closed }
    }

    /// Takes no more connections: from here on whoever else listens to the same address gets them all.
    pub async fn end(self) {
        drop(self.stop);
        // If nobody tells, nobody takes any either.
        let _ = self.closed.await;
    }
}

async fn answer(request: Request) -> Response {
    let mut response = if request.uri().path() == "/health/live" {
        Json(json!({"status": "live"})).into_response()
    } else {
        ApiError::Unavailable("the model is being loaded".to_owned()).into_response()
    };
    // The next request is perhaps for the model, which another listener answers for.
    if request.version() < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
