//! All that knows JSON, the protocols of OpenAI, Anthropic and Ollama, and server-sent events. Knows
//! requests and texts, and nothing of tensors, blocks or models.
//!
//! ```text
//! router       routes and layers                                     | loading: before there is a model
//! front        what a server has around its routes that passes requests on to others
//! connections  HTTP/1.1 and HTTP/2 within bounds                     | listener  bounded_io  tls
//! openapi      the API's own description
//! openai anthropic ollama         one folder per protocol: input, writer, handlers
//! cohere tei ops                  the same
//! ranking      scores, classes and vectors of any kind, in the shapes of vLLM, Jina and Cohere
//! page         the chat and the status page, for browsers: embedded files
//! generate     the request that all protocols share, to the engine
//! answer       from the engine's outputs to the bytes of a response
//! middleware   what happens around every handler
//! request      a body to wire structs; the fields that no struct has
//! ledger       what keys used, to the store
//! state        what there is one of in a server
//! wire         JSON as serde reads and writes it, and its bounds      | error
//! ```
//!
//! A request passes `middleware` (id, panics, metrics, drain, keys). `request::extract` reads its
//! body into the structs in `wire`, and the protocol's `input` makes a
//! `generate::chat_request::ChatRequest` of them, in which all protocols are alike. `generate`
//! checks it against the model, renders the prompt and submits it; `answer` makes deltas of the
//! tokens that come back, and the protocol's `writer` makes JSON of those.
//!
//! # How to add a request field
//!
//! One that every generating route takes:
//!
//! 1. `src/http/wire/sampling.rs`: a field of `CommonFields`, with its schema.
//! 2. `src/http/generate/options.rs`: its check, and a field of `GenerationOptions`.
//! 3. The file that reads the value, `src/http/generate/plan.rs` where the engine is told.
//!
//! One of a single protocol, such as chat completions:
//!
//! 1. `src/http/wire/chat.rs`: a field of the wire struct.
//! 2. `src/http/openai/chat/input.rs`: its check, into the part of `ChatRequest` that it belongs to.
//! 3. The file that reads the value. A new field of a struct in
//!    `src/http/generate/chat_request.rs` is asked for by the compiler in every protocol's `input`.
//!
//! A field that is known and can't change an answer is a row of `COMMON` in
//! `src/http/request/rules.rs`, or of the protocol's own rules.

use std::io;
use std::time::Duration;

use futures::FutureExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub mod answer;
mod anthropic;
mod bounded_io;
mod cohere;
mod connections;
mod error;
pub(crate) mod front;
mod generate;
mod ledger;
pub mod listener;
mod loading;
mod middleware;
mod ollama;
mod openai;
mod openapi;
mod ops;
mod page;
mod ranking;
mod request;
mod router;
pub mod state;
mod tei;
#[cfg(feature = "tls")]
pub mod tls;
mod wire;
mod worker;

use connections::Bounds;
use listener::Listener;
pub use loading::Loading;
use middleware::ports::Routes;
pub use router::router;
use router::router_of;
use state::AppState;
use worker::Worker;

/// How often samples of histograms are folded into buckets.
const METRICS_UPKEEP: Duration = Duration::from_secs(5);
/// How long answers may take to reach their clients once everything has ended.
pub(crate) const LAST_WRITES: Duration = Duration::from_secs(2);

/// What became of the requests that ran when the server was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Sequences that had to be cut when `drain_timeout` was over.
    pub cut: usize,
}

/// Where a server listens.
#[derive(Debug)]
pub struct Listeners {
    /// For everybody.
    pub public: Listener,
    /// For operators, whose routes the other one hasn't then.
    pub operators: Option<Listener>,
}

impl From<TcpListener> for Listeners {
    fn from(listener: TcpListener) -> Self {
        Self { public: listener.into(), operators: None }
    }
}

/// Serves until `shutdown` resolves, then drains: readiness turns red at once, new requests are
/// refused after `drain_delay`, running ones may go on for `drain_timeout` from then on, and what
/// still runs at the end is cut.
///
/// # Errors
/// When a listener fails.
pub async fn serve(
    listeners: impl Into<Listeners>,
    state: AppState,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<DrainReport> {
    let (close, closed) = oneshot::channel::<()>();
    let closed = async move { drop(closed.await) }.shared();
    let mut server = tokio::spawn(listen(listeners.into(), state.clone(), closed));
    let upkeep = tokio::spawn(keep_metrics(state.clone()));
    let ledger = tokio::spawn(ledger::keep(state.clone()));
    let worker = Worker::start(&state, router::for_stored_requests(state.clone()));
    tokio::select! {
        () = shutdown => {}
        ended = &mut server => {
            upkeep.abort();
            ledger.abort();
            worker.stop().await;
            return ended.map(|()| DrainReport { cut: 0 }).map_err(io::Error::other);
        }
    }
    // Nobody waits for what was stored: it goes on after a restart, or elsewhere.
    state.start_leaving();
    worker.stop().await;
    let delay = state.config.drain_delay;
    if !delay.is_zero() && state.engine.is_running() {
        tracing::info!(?delay, "not ready any more, and still taking requests");
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = state.engine.ended() => {}
        }
    }
    let report = drain(&state).await;
    drop(close);
    if tokio::time::timeout(LAST_WRITES, &mut server).await.is_err() {
        tracing::warn!("connections were still open at the end");
        server.abort();
    }
    upkeep.abort();
    ledger.abort();
    let _ = tokio::time::timeout(LAST_WRITES, ledger::write(&state)).await;
    Ok(report)
}

/// Serves all addresses until `closed` resolves.
async fn listen(
    listeners: Listeners,
    state: AppState,
    closed: impl Future<Output = ()> + Clone + Send + 'static,
) {
    let Listeners { public, operators } = listeners;
    let bounds = Bounds::new(state.config.max_connections, Some(state.metrics.clone()));
    let own = if operators.is_some() { Routes::Public } else { Routes::All };
    let router = router_of(state.clone(), own);
    let public = connections::serve(public, router, bounds.clone(), closed.clone());
    let Some(operators) = operators else { return public.await };
    let router = router_of(state, Routes::Operators);
    tokio::join!(public, connections::serve(operators, router, bounds, closed));
}

async fn drain(state: &AppState) -> DrainReport {
    state.start_draining();
    let running = state.in_use();
    let timeout = state.config.drain_timeout;
    tracing::info!(running, ?timeout, "draining");
    let mut cut = 0;
    if tokio::time::timeout(timeout, state.idle()).await.is_err() {
        cut = state.in_use();
        state.metrics.add_cut(cut);
        state.cut();
        // A handler whose client reads no more can't end; it is left behind.
        let _ = tokio::time::timeout(LAST_WRITES, state.idle()).await;
    }
    tracing::info!(ended = running.saturating_sub(cut), cut, "drained");
    DrainReport { cut }
}

async fn keep_metrics(state: AppState) {
    let mut interval = tokio::time::interval(METRICS_UPKEEP);
    loop {
        interval.tick().await;
        state.metrics.run_upkeep();
    }
}
