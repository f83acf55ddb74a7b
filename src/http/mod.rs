//! All that knows JSON, the protocols of OpenAI, Anthropic and Ollama, and server-sent events. Knows
//! requests and texts, and nothing of tensors, blocks or models.
//!
//! ```text
//! router       routes and layers                                     | connections
//! openapi      the API's own description
//! openai anthropic ollama         one folder per protocol: input, writer, handlers
//! cohere tei ops                  the same
//! ranking      scores, classes and vectors of any kind, in the shapes of vLLM, Jina and Cohere
//! page         the chat and the status page, for browsers: embedded files
//! generate     the request that all protocols share, to the engine
//! answer       from the engine's outputs to the bytes of a response
//! middleware   what happens around every handler
//! request      a body to wire structs; the fields that no struct has
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

use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub mod answer;
mod anthropic;
mod cohere;
mod connections;
mod error;
mod generate;
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
mod wire;
mod worker;

use connections::HEADERS;
pub use router::router;
use state::AppState;
use worker::Worker;

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
    let (close, closed) = oneshot::channel::<()>();
    let closed = async move { drop(closed.await) };
    let connections = connections::serve(listener, router(state.clone()), HEADERS, closed);
    let mut server = tokio::spawn(connections);
    let upkeep = tokio::spawn(keep_metrics(state.clone()));
    let worker = Worker::start(&state, router::for_stored_requests(state.clone()));
    tokio::select! {
        () = shutdown => {}
        ended = &mut server => {
            upkeep.abort();
            worker.stop().await;
            return ended.map(|()| DrainReport { cut: 0 }).map_err(io::Error::other);
        }
    }
    // Nobody waits for what was stored: it goes on after a restart, or elsewhere.
    state.start_draining();
    worker.stop().await;
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
    let running = state.admission.in_use();
    let timeout = state.config.drain_timeout;
    tracing::info!(running, ?timeout, "draining");
    let mut cut = 0;
    if tokio::time::timeout(timeout, state.admission.idle()).await.is_err() {
        cut = state.admission.in_use();
        state.cut();
        // A handler whose client reads no more can't end; it is left behind.
        let _ = tokio::time::timeout(LAST_WRITES, state.admission.idle()).await;
    }
    tracing::info!(cut, "drained");
    DrainReport { cut }
}

async fn keep_metrics(state: AppState) {
    let mut interval = tokio::time::interval(METRICS_UPKEEP);
    loop {
        interval.tick().await;
        state.metrics.run_upkeep();
    }
}
