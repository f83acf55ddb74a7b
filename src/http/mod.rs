//! All that knows JSON, the APIs of OpenAI and Anthropic, and server-sent events. Knows requests and texts, and
//! nothing of tensors, blocks or models.
//!
//! A request passes `observe` (id, panics, metrics), `refuse_while_draining` and `auth`, then its
//! handler: `body` parses it, `types` are its shapes, `prompt` renders it, `request` submits it,
//! `generation` merges what comes back, `delta` makes text of it, and `stream` answers.

use std::io;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tower_http::cors::{AllowHeaders, Any, CorsLayer};

pub mod adapters;
mod admission;
mod answer;
mod auth;
mod body;
mod chat;
mod chat_plan;
mod chat_writer;
mod completion_writer;
mod completions;
pub mod delta;
mod embeddings;
mod error;
mod generation;
mod grammar;
mod logprobs;
mod messages;
mod messages_error;
mod messages_input;
mod messages_writer;
mod meter;
mod observe;
mod openapi;
mod ops;
mod path_id;
mod prompt;
pub mod reader;
mod request;
mod responses;
pub mod state;
mod stream;
mod tokenize;
mod tools;
mod types;

use error::ApiError;
use state::AppState;

/// How often samples of histograms are folded into buckets.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);
/// How long answers may take to reach their clients once everything has ended.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// What became of the requests that ran when the server was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Sequences that had to be cut when `drain_timeout` was over.
    pub cut: usize,
}

/// All routes.
pub fn router(state: AppState) -> Router {
    let routes = Router::new()
        .route("/v1/models", get(ops::models))
        .route("/v1/models/{*id}", get(ops::model))
        .route("/v1/chat/completions", post(chat::chat_completions))
        .route("/v1/chat/completions/render", post(chat::render))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/messages", post(messages::messages))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/responses", post(responses::create))
        .route("/v1/responses/input_tokens", post(responses::input_tokens))
        .route("/v1/responses/{id}", get(responses::retrieve).delete(responses::delete))
        .route("/v1/responses/{id}/cancel", post(responses::cancel))
        .route("/v1/responses/{id}/input_items", get(responses::input_items))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/load_lora_adapter", post(adapters::load))
        .route("/v1/unload_lora_adapter", post(adapters::unload))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/health", get(ops::ready))
        .route("/health/ready", get(ops::ready))
        .route("/health/live", get(ops::live))
        .route("/metrics", get(ops::metrics))
        .route("/version", get(ops::version))
        .route("/openapi.json", get(openapi::openapi))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method);
    let layered = routes
        .layer(middleware::from_fn_with_state(state.clone(), embeddings::refuse_generation))
        .layer(middleware::from_fn_with_state(state.clone(), auth::require_key))
        .layer(middleware::from_fn_with_state(state.clone(), observe::refuse_while_draining))
        .layer(middleware::from_fn_with_state(state.clone(), observe::observe));
    let origins = &state.config().cors_origins;
    let layered = if origins.is_empty() { layered } else { layered.layer(cors(origins)) };
    layered.with_state(state)
}

/// Serves until `shutdown` resolves, then drains: readiness turns red and new requests are
/// refused at once, running ones may go on for `drain_timeout`, and what then still runs is cut.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    state: AppState,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<DrainReport> {
    // Without it, the kernel holds back a token's packet until the one before is acknowledged.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
    });
    let (close, closed) = oneshot::channel::<()>();
    let server = axum::serve(listener, router(state.clone()))
        .with_graceful_shutdown(async move { drop(closed.await) });
    let mut server = tokio::spawn(server.into_future());
    let upkeep = tokio::spawn(keep_metrics(state.clone()));
    tokio::select! {
        () = shutdown => {}
        ended = &mut server => {
            upkeep.abort();
            return ended.map_err(io::Error::other)?.map(|()| DrainReport { cut: 0 });
        }
    }
    let report = drain(&state).await;
    drop(close);
    if tokio::time::timeout(LAST_WRITES, &mut server).await.is_err() {
        tracing::warn!("connections were still open at the end");
        server.abort();
    }
    upkeep.abort();
    Ok(report)
}

async fn drain(state: &AppState) -> DrainReport {
    state.start_draining();
    let running = state.admission().in_use();
    let timeout = state.config().drain_timeout;
    tracing::info!(running, ?timeout, "draining");
    let mut cut = 0;
    if tokio::time::timeout(timeout, state.admission().idle()).await.is_err() {
        cut = state.admission().in_use();
        state.cut();
        // A handler whose client reads no more can't end; it is left behind.
        let _ = tokio::time::timeout(LAST_WRITES, state.admission().idle()).await;
    }
    tracing::info!(cut, "drained");
    DrainReport { cut }
}

async fn keep_metrics(state: AppState) {
    let mut interval = tokio::time::interval(METRICS_UPKEEP);
    loop {
        interval.tick().await;
        state.metrics().run_upkeep();
        state.responses().expire(Instant::now());
    }
}

fn cors(origins: &[String]) -> CorsLayer {
    // SDKs send headers of their own, and `*` would not cover `authorization`.
    let headers = AllowHeaders::mirror_request();
    let layer = CorsLayer::new().allow_methods(Any).allow_headers(headers).expose_headers(Any);
    if origins.iter().any(|origin| origin == "*") {
        return layer.allow_origin(Any);
    }
    let origins = origins.iter().filter_map(|origin| HeaderValue::try_from(origin).ok());
    layer.allow_origin(origins.collect::<Vec<_>>())
}

async fn no_route(request: Request) -> ApiError {
    ApiError::RouteNotFound(request.uri().path().to_owned())
}

async fn wrong_method(request: Request) -> ApiError {
    ApiError::MethodNotAllowed(request.uri().path().to_owned(), request.method().to_string())
}
