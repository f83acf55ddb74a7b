//! `/v1/responses`: OpenAI's newer shape of a chat, and the responses that are stored, or run in the background.
//!
//! `items` reads the input, with what `references` lead to, `conversation` makes a chat of it, and `input`
//! judges the other fields; from there on a response is a chat like any other. `events` makes items of the
//! answer, `writer` the JSON, `stored` gives responses back, `background` queues those that nobody waits
//! for, and `compaction` makes a long conversation short.

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::http::error::ApiError;
use crate::http::generate::chat::CheckedChat;
use crate::http::generate::rendered::Described;
use crate::http::request::extract::{Extracted, Whole};
use crate::http::request::id::RequestId;
use crate::http::request::owner::Owner;
use crate::http::state::AppState;
use crate::http::state::response_store::BackgroundRun;
use events::{Numbering, Output};
use input::{Converted, ResponseBody};
use settings::begun;
use writer::{ResponsesWriter, Storing};

pub(crate) mod background;
pub(crate) mod compaction;
mod comparison;
pub(crate) mod conversation;
mod events;
mod input;
pub(crate) mod items;
pub(crate) mod references;
mod settings;
pub(crate) mod stored;
mod tools;
mod writer;

/// `POST /v1/responses`.
pub(crate) async fn create(
    State(state): State<AppState>,
    owner: Owner,
    run: Option<Extension<BackgroundRun>>,
    Whole { json, request }: Whole<ResponseBody>,
) -> Result<Response, ApiError> {
    let run = run.map(|Extension(run)| run);
    let converted = Converted::new(&state, &owner, request).await?;
    if converted.settings.background && run.is_none() {
        return background::queue(&state, owner, json, converted).await;
    }
    let Converted { chat, settings, comparison, model, .. } = converted;
    let Converted { conversation, called, carries_reasoning, ignored, adapter, arrival, .. } =
        converted;
    let (streams, stores) = (chat.streams, settings.store);
    // Ids of responses are kept, so none may come twice.
    let ignored = ignored.and("request_id", chat.options.own.request_id.is_some());
    let prepared = CheckedChat::new(&state, chat, adapter, arrival)?.prepare(&state).await?;
    let options = &prepared.plan.options;
    let mut response = begun(model, settings, options.seed);
    if let Some(run) = &run {
        response.id.clone_from(&run.id);
        response.created_at = run.created_at;
    }
    response.prompt_cache_diagnostics =
        comparison.told(&state, &response.id, &prepared.prompt.token_ids);
    let output = Output::new(called).carrying_reasoning(carries_reasoning);
    let writer = ResponsesWriter {
        logprobs: options.own.logprobs.map(|_| options.logprob_spelling(&state)),
        storing: stores.then(|| Storing { state: state.clone(), owner, input: conversation, run }),
        response,
        output: if options.prewarms() { output.silent() } else { output },
        numbering: Numbering::default(),
        finish: None,
        ending: Vec::new(),
    };
    prepared.answer(&state, writer, streams, &ignored).await
}

/// Why a request that would rather talk over a WebSocket must use HTTP; `None` for others.
pub(crate) fn no_websocket(request: &Request) -> Option<ApiError> {
    let path = request.uri().path();
    let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
    let wants_one = upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"));
    (wants_one && path == "/v1/responses").then(|| ApiError::UpgradeUnsupported(path.to_owned()))
}

/// `POST /v1/responses/render`: a request as the engine would get it.
pub(crate) async fn render(
    State(state): State<AppState>,
    owner: Owner,
    Extension(id): Extension<RequestId>,
    request: Extracted<ResponseBody>,
) -> Result<Response, ApiError> {
    let converted = Converted::new(&state, &owner, request).await?;
    let Converted { chat, model, ignored, adapter, arrival, .. } = converted;
    // The whole id, as in vLLM, which has no header here.
    let named = chat.options.own.request_id.clone();
    let id = named.unwrap_or_else(|| id.or_in_body("resp_", None));
    let described = Described { id, model, offsets: false };
    let answer = CheckedChat::new(&state, chat, adapter, arrival)?.describe(&state, described);
    let answer = answer.await?;
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// `POST /v1/responses/input_tokens`: how many tokens a request's prompt has.
pub(crate) async fn input_tokens(
    State(state): State<AppState>,
    owner: Owner,
    request: Extracted<ResponseBody>,
) -> Result<Response, ApiError> {
    let converted = Converted::new(&state, &owner, request).await?;
    let Converted { chat, ignored, adapter, arrival, .. } = converted;
    let prompt = CheckedChat::new(&state, chat, adapter, arrival)?.render(&state).await?;
    let answer = json!({
        "object": "response.input_tokens",
        "input_tokens": prompt.token_ids.len(),
    });
    Ok(ignored.tell(axum::Json(answer).into_response()))
}
