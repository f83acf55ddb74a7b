//! `/v1/messages` and `/v1/messages/count_tokens`: Anthropic's Messages API.
//!
//! Fields of the other protocols that have no counterpart here (`n`, `logprobs`, `stop`) are unknown
//! fields.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use crate::http::error::ApiError;
use crate::http::generate::chat::CheckedChat;
use crate::http::generate::rendered::Described;
use crate::http::request::extract::Extracted;
use crate::http::request::fields::required;
use crate::http::request::id::RequestId;
use crate::http::state::AppState;
use crate::http::wire::messages::CountedTokens;
use input::{Converted, MessagesBody};
use writer::MessagesWriter;

pub(crate) mod batches;
mod conversation;
mod diagnostics;
mod documents;
pub(crate) mod error;
mod input;
mod toolbox;
mod tools;
mod writer;

/// `POST /v1/messages`.
pub(crate) async fn messages(
    State(state): State<AppState>,
    Extension(RequestId { value: id, .. }): Extension<RequestId>,
    request: Extracted<MessagesBody>,
) -> Result<Response, ApiError> {
    required(request.body.request.max_tokens, "", "max_tokens")?;
    let Converted { chat, model, comparison, omits_reasoning, ignored, adapter, arrival } =
        Converted::new(&state, request)?;
    let streams = chat.streams;
    let max_tokens = chat.options.own.max_tokens.unwrap_or_default();
    let chat = CheckedChat::new(&state, chat, adapter, arrival)?.prepare(&state).await?;
    let request_id = id.to_str().unwrap_or_default().to_owned();
    let mut writer = MessagesWriter::new(model, request_id, max_tokens, omits_reasoning);
    writer.diagnostics = comparison
        .and_then(|comparison| comparison.told(&state, &writer.id, &chat.prompt.token_ids));
    chat.answer(&state, writer, streams, &ignored).await
}

/// `POST /v1/messages/render`: a request as the engine would get it.
pub(crate) async fn render(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Extracted<MessagesBody>,
) -> Result<Response, ApiError> {
    let Converted { chat, model, ignored, adapter, arrival, .. } = Converted::new(&state, request)?;
    let described = Described { id: id.or_in_body("msg_", None), model, offsets: false };
    let answer = CheckedChat::new(&state, chat, adapter, arrival)?.describe(&state, described);
    let answer = answer.await?;
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// `POST /v1/messages/count_tokens`.
pub(crate) async fn count_tokens(
    State(state): State<AppState>,
    request: Extracted<MessagesBody>,
) -> Result<Response, ApiError> {
    let Converted { chat, ignored, adapter, arrival, .. } = Converted::new(&state, request)?;
    let prompt = CheckedChat::new(&state, chat, adapter, arrival)?.render(&state).await?;
    let answer = axum::Json(CountedTokens { input_tokens: prompt.token_ids.len() });
    Ok(ignored.tell(answer.into_response()))
}
