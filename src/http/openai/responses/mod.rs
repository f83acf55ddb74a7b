//! `/v1/responses`: OpenAI's newer shape of a chat, and the responses that are stored on request.
//!
//! `items` reads the input, `conversation` makes a chat of it, and `input` judges the other fields;
//! from there on a response is a chat like any other. `events` makes items of the answer, `writer`
//! the JSON, and `stored` gives responses back.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::envelope::item_id;
use crate::http::error::ApiError;
use crate::http::generate::chat::CheckedChat;
use crate::http::generate::rendered::Described;
use crate::http::request::extract::Extracted;
use crate::http::request::id::RequestId;
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::wire::chat::StopReason;
use crate::http::wire::responses::{ResponseObject, Settings, Status};
use events::{Numbering, Output};
use input::{Converted, ResponseBody};
use writer::{ResponsesWriter, Storing};

mod comparison;
pub(crate) mod conversation;
mod events;
mod input;
pub(crate) mod items;
mod settings;
pub(crate) mod stored;
mod tools;
mod writer;

/// `POST /v1/responses`.
pub(crate) async fn create(
    State(state): State<AppState>,
    request: Extracted<ResponseBody>,
) -> Result<Response, ApiError> {
    let converted = Converted::new(&state, request)?;
    let Converted { chat, settings, comparison, model, .. } = converted;
    let Converted { conversation, called, ignored, adapter, arrival, .. } = converted;
    let (streams, stores) = (chat.streams, settings.store);
    // Ids of responses are kept, so none may come twice.
    let ignored = ignored.and("request_id", chat.options.own.request_id.is_some());
    let prepared = CheckedChat::new(&state, chat, adapter, arrival)?.prepare(&state).await?;
    let options = &prepared.plan.options;
    let mut response = begun(model, settings, options.seed);
    response.prompt_cache_diagnostics =
        comparison.told(&state, &response.id, &prepared.prompt.token_ids);
    let output = Output::new(called);
    let writer = ResponsesWriter {
        logprobs: options.own.logprobs.map(|_| options.logprob_spelling(&state)),
        storing: stores.then(|| Storing { state: state.clone(), input: conversation }),
        response,
        output: if options.prewarms() { output.silent() } else { output },
        numbering: Numbering::default(),
        finish: None,
    };
    prepared.answer(&state, writer, streams, &ignored).await
}

/// `POST /v1/responses/render`: a request as the engine would get it.
pub(crate) async fn render(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Extracted<ResponseBody>,
) -> Result<Response, ApiError> {
    let Converted { chat, model, ignored, adapter, arrival, .. } = Converted::new(&state, request)?;
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
    request: Extracted<ResponseBody>,
) -> Result<Response, ApiError> {
    let Converted { chat, ignored, adapter, arrival, .. } = Converted::new(&state, request)?;
    let prompt = CheckedChat::new(&state, chat, adapter, arrival)?.render(&state).await?;
    let answer = json!({
        "object": "response.input_tokens",
        "input_tokens": prompt.token_ids.len(),
    });
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// A response of which nothing is there yet.
fn begun(model: String, settings: Settings, seed: i64) -> ResponseObject {
    ResponseObject {
        id: item_id("resp"),
        object: "response",
        created_at: unix_seconds(),
        status: Status::InProgress,
        completed_at: None,
        error: None,
        incomplete_details: None,
        model,
        output: Vec::new(),
        usage: None,
        settings,
        seed,
        stop_reason: StopReason::Nothing,
        timings: None,
        prompt_cache_diagnostics: None,
    }
}
