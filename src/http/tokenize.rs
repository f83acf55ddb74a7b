//! `/tokenize` and `/detokenize`: text to ids and back, without a model.

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::body::{JsonBody, field_names};
use super::error::ApiError;
use super::prompt::{Conversation, off_thread};
use super::request::with_ignored;
use super::state::AppState;
use super::tools::ToolSetup;
use super::types::chat::ChatCompletionRequest;
use super::types::fields::IgnoredFields;
use super::types::sampling::token_id;
use super::types::tokenize::{DetokenizeRequest, Detokenized, TokenizeRequest, Tokenized};

/// `POST /tokenize`.
pub(crate) async fn tokenize(
    State(state): State<AppState>,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let request: TokenizeRequest = body.read()?;
    let chat: ChatCompletionRequest = body.read()?;
    if chat.model.is_some() {
        state.check_model(chat.model.as_deref())?;
    }
    // What shapes the prompt of a conversation says nothing about a text.
    let beside = if chat.messages.is_some() {
        field_names::<ChatCompletionRequest>()
    } else {
        &["model", "add_special_tokens"]
    };
    let known = [field_names::<TokenizeRequest>(), beside];
    let mut ignored = IgnoredFields::judge(body.unknown(&known))?;
    let tokens = match (request.prompt.or(request.content), &chat.messages) {
        (Some(_), Some(_)) => {
            return Err(ApiError::field("prompt", "prompt and messages can't both be given"));
        }
        (None, None) => return Err(ApiError::field("prompt", "prompt or messages is required")),
        (Some(text), None) => {
            let add_special_tokens = chat.add_special_tokens.unwrap_or(true);
            let tokenizer = state.tokenizer().clone();
            off_thread(move || {
                let ids = tokenizer.encode(&text, add_special_tokens);
                ids.map_err(|error| ApiError::field("prompt", error.to_string()))
            })
            .await?
        }
        (None, Some(_)) => {
            let tools = ToolSetup::new(&state, &chat)?;
            let conversation = Conversation::new(&state, &chat, &tools, &mut ignored)?;
            conversation.render(&state).await?.token_ids
        }
    };
    ignored.check_strict(state.config().strict)?;
    let spelled = |id: &u32| state.tokenizer().token(*id).unwrap_or_default();
    let with_strs = request.return_token_strs.unwrap_or(false);
    let answer = axum::Json(Tokenized {
        count: tokens.len(),
        max_model_len: state.engine().limits().max_model_len,
        token_strs: with_strs.then(|| tokens.iter().map(spelled).collect()),
        tokens,
    });
    Ok(with_ignored(answer.into_response(), &ignored))
}

/// `POST /detokenize`.
pub(crate) async fn detokenize(
    State(state): State<AppState>,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let request: DetokenizeRequest = body.read()?;
    if request.model.is_some() {
        state.check_model(request.model.as_deref())?;
    }
    let ignored = IgnoredFields::judge(body.unknown(&[field_names::<DetokenizeRequest>()]))?;
    ignored.check_strict(state.config().strict)?;
    let tokens = request.tokens.ok_or_else(|| ApiError::field("tokens", "tokens is required"))?;
    let vocab_size = state.engine().limits().vocab_size;
    let ids: Result<Vec<u32>, ApiError> =
        tokens.iter().map(|id| token_id("tokens", *id, vocab_size)).collect();
    let ids = ids?;
    let skip_special_tokens = request.skip_special_tokens.unwrap_or(false);
    let tokenizer = state.tokenizer().clone();
    let text = off_thread(move || Ok(tokenizer.decode(&ids, skip_special_tokens))).await?;
    let answer = axum::Json(Detokenized { content: text.clone(), prompt: text });
    Ok(with_ignored(answer.into_response(), &ignored))
}
