//! One stored request: through the router, and its answer into the store.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, header};
use axum::response::Response;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::Value;

use crate::http::error::ApiError;
use crate::http::request::owner::Owner;
use crate::http::state::AppState;
use crate::http::state::packing::pack;
use crate::store::{ClaimedLine, LineState, StoreError, now_ms};

/// How long a request waits that there was no room for.
const AGAIN: i64 = 1000;
/// How long to wait for a store that is down before an answer is offered to it again.
const RETRY: Duration = Duration::from_millis(500);

/// A claimed request, and what it is run with.
pub(super) struct Run {
    pub(super) state: AppState,
    pub(super) router: Router,
    pub(super) holder: String,
    pub(super) line: ClaimedLine,
}

/// A stored request.
#[derive(Debug, Deserialize)]
pub(super) struct Stored {
    pub(super) owner: String,
    pub(super) path: String,
    pub(super) request: Value,
}

/// A stored request as its handler gets it.
pub(super) fn request(stored: Stored) -> Request<Body> {
    let Stored { owner, path, request } = stored;
    let mut made = Request::new(Body::from(request.to_string()));
    *made.method_mut() = Method::POST;
    *made.uri_mut() = path.parse().unwrap_or_default();
    let json = header::HeaderValue::from_static("application/json");
    made.headers_mut().insert(header::CONTENT_TYPE, json);
    made.extensions_mut().insert(Owner(owner));
    made
}

impl Run {
    /// Answers a request as the server would.
    pub(super) async fn call(&self, request: Request<Body>) -> Response {
        let service = TowerToHyperService::new(self.router.clone());
        let owner = request.extensions().get::<Owner>().map_or("", |Owner(owner)| owner);
        let caller = self.state.caller_of_stored(owner);
        match caller.scope(service.call(request)).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Stores the answer, unless another server has the request by now.
    pub(super) async fn answer(&self, state: LineState, answer: &Value) {
        let (body, line) = (pack(answer), &self.line);
        loop {
            let store = &self.state.store;
            let stored =
                store.answer_line(&self.holder, &line.batch, line.number, state, body.clone());
            match stored.await {
                Ok(true) => return,
                Ok(false) => {
                    tracing::debug!(line.batch, line.number, "the line is another server's");
                    return;
                }
                // A lease that is over meanwhile is another server's to take.
                Err(StoreError::Unavailable(_) | StoreError::Full(_)) => {
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "an answer could not be stored");
                    return;
                }
            }
        }
    }

    /// Gives the request back: there was no room for it.
    pub(super) async fn release(&self) {
        let (line, again) = (&self.line, now_ms() + AGAIN);
        let store = &self.state.store;
        if let Err(error) = store.release_line(&self.holder, &line.batch, line.number, again).await
        {
            tracing::debug!(%error, "the line is free once its lease is over");
        }
    }

    /// The answer to a request whose handler was never reached.
    pub(super) async fn fail(&self, error: &ApiError) {
        self.answer(LineState::Failed, &error.body()).await;
    }
}
