//! `/v1/chat/completions`, the prompt that a chat request would run, and completions that are
//! stored.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::envelope::Envelope;
use crate::http::error::ApiError;
use crate::http::generate::chat::CheckedChat;
use crate::http::generate::chat_request::ToolChoice;
use crate::http::generate::rendered::Described;
use crate::http::request::extract::{Extracted, Whole};
use crate::http::request::id::RequestId;
use crate::http::request::owner::Owner;
use crate::http::state::AppState;
use input::{ChatBody, Converted};
use stored::StoringChat;
use writer::ChatWriter;

pub(crate) mod input;
pub(crate) mod stored;
mod writer;

/// `POST /v1/chat/completions`.
pub(crate) async fn chat_completions(
    State(state): State<AppState>,
    owner: Owner,
    Whole { json, request }: Whole<ChatBody>,
) -> Result<Response, ApiError> {
    let storing = StoringChat::new(&state, owner, &json).await?;
    let Converted { chat, model, logprobs, streaming, offsets, ignored, adapter, arrival } =
        Converted::new(&state, request)?;
    let ignored = ignored.and("return_token_offsets", offsets);
    let calls_named = matches!(chat.conversation.tools.choice, Some(ToolChoice::Named(_)));
    let chat = CheckedChat::new(&state, chat, adapter, arrival)?.prepare(&state).await?;
    let options = &chat.plan.options;
    let spelling = || options.logprob_spelling(&state);
    let writer = ChatWriter {
        envelope: Envelope::new("chatcmpl", model, options, &state),
        num_choices: options.own.n,
        usage: streaming.unwrap_or_default(),
        logprobs: logprobs.then(spelling),
        prompt_logprobs: options.own.prompt_logprobs.map(|most| (spelling(), most)),
        prompt_token_ids: options.own.return_token_ids.then(|| chat.prompt.token_ids.clone()),
        reasons: chat.plan.decoding.reading.reasoning.is_some(),
        seed: options.seed,
        unfinished: options.own.n,
        calls_named,
        storing,
    };
    chat.answer(&state, writer, streaming.is_some(), &ignored).await
}

/// `POST /v1/chat/completions/render`.
pub(crate) async fn render(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Extracted<ChatBody>,
) -> Result<Response, ApiError> {
    let Converted { chat, model, offsets, ignored, adapter, arrival, .. } =
        Converted::new(&state, request)?;
    let id = id.or_in_body("chatcmpl-", chat.options.own.request_id.as_deref());
    let described = Described { id, model, offsets };
    let answer = CheckedChat::new(&state, chat, adapter, arrival)?.describe(&state, described);
    let answer = answer.await?;
    Ok(ignored.tell(axum::Json(answer).into_response()))
}

/// `POST /v1/chat/completions/input_tokens`: how many tokens a request's prompt has.
pub(crate) async fn input_tokens(
    State(state): State<AppState>,
    request: Extracted<ChatBody>,
) -> Result<Response, ApiError> {
    let Converted { chat, ignored, adapter, arrival, .. } = Converted::new(&state, request)?;
    let prompt = CheckedChat::new(&state, chat, adapter, arrival)?.render(&state).await?;
    let answer = json!({"object": "response.input_tokens", "input_tokens": prompt.token_ids.len()});
    Ok(ignored.tell(axum::Json(answer).into_response()))
}
