//! `/v1/responses`: OpenAI's newer shape of a chat, and the responses that are stored on request.
//!
//! `items` reads the input, `conversation` makes a chat of it, and `input` judges the other fields;
//! from there on a response is a chat like any other. `events` makes items of the answer, `writer`
//! the JSON, and `stored` gives responses back.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::envelope::item_id;
use crate::http::error::ApiError;
use crate::http::generate::chat::CheckedChat;
use crate::http::request::extract::Extracted;
use crate::http::state::AppState;
use crate::http::state::clock::unix_seconds;
use crate::http::wire::chat::StopReason;
use crate::http::wire::responses::{ResponseObject, Settings, Status};
use events::{Numbering, Output};
use input::{Converted, ResponseBody};
use writer::{ResponsesWriter, Storing};

mod conversation;
mod events;
mod input;
mod items;
mod settings;
pub(crate) mod stored;
mod tools;
mod writer;

/// `POST /v1/responses`.
pub(crate) async fn create(
    State(state): State<AppState>,
    request: Extracted<ResponseBody>,
) -> Result<Response, ApiError> {
    let Converted { chat, settings, model, conversation, called, ignored, adapter, arrival } =
        Converted::new(&state, request)?;
    let streams = chat.streams;
    let prepared = CheckedChat::new(&state, chat, adapter, arrival)?.prepare(&state).await?;
    let options = &prepared.plan.options;
    let writer = ResponsesWriter {
        logprobs: options.own.logprobs.map(|_| options.logprob_spelling(&state)),
        storing: settings.store.then(|| Storing { state: state.clone(), input: conversation }),
        response: begun(model, settings, options.seed),
        output: Output::new(called),
        numbering: Numbering::default(),
        finish: None,
    };
    prepared.answer(&state, writer, streams, &ignored).await
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
    }
}
