//! `/tokenize` and `/detokenize`: text to ids and back, without a model.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::http::error::ApiError;
use crate::http::generate::prompt;
use crate::http::openai::chat::input::{CHAT_RULES, conversation};
use crate::http::request::blocking::off_thread;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::request::fields::{BodyReader, required};
use crate::http::request::rules::{COMMON, Rules};
use crate::http::state::AppState;
use crate::http::wire::chat::ChatCompletionRequest;
use crate::http::wire::number::token_ids;
use crate::http::wire::tokenize::{
    DetokenizeRequest, Detokenized, Token, TokenizeRequest, Tokenized,
};

/// The body of `POST /tokenize`: a text, or a conversation with what shapes its prompt.
#[derive(Debug)]
pub(crate) struct TokenizeBody {
    request: TokenizeRequest,
    chat: Option<ChatCompletionRequest>,
}

impl RequestBody for TokenizeBody {
    const RULES: &'static [Rules] = &[COMMON, CHAT_RULES];

    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        // What shapes the prompt of a conversation says nothing about a text.
        let chat = body.gives("messages").then(|| body.take()).transpose()?;
        Ok(Self { request: body.take()?, chat })
    }

    fn model(&self) -> Option<&str> {
        self.request.model.as_deref()
    }
}

/// `POST /tokenize`.
pub(crate) async fn tokenize(
    State(state): State<AppState>,
    extracted: Extracted<TokenizeBody>,
) -> Result<Response, ApiError> {
    let Extracted { body: TokenizeBody { request, chat }, mut fields, .. } = extracted;
    let (tokens, ignored) = match (request.prompt.or(request.content), chat) {
        (Some(_), Some(_)) => {
            return Err(ApiError::field("prompt", "prompt and messages can't both be given"));
        }
        (None, None) => return Err(ApiError::field("prompt", "prompt or messages is required")),
        (Some(text), None) => {
            let ignored = fields.finish(state.config.strict)?;
            let own = request.add_special_tokens.or(request.add_special);
            let add_special_tokens = own.unwrap_or(true);
            let tokenizer = state.tokenizer.clone();
            let ids = off_thread(move || {
                let ids = tokenizer.encode(&text, add_special_tokens);
                ids.map_err(|error| ApiError::field("prompt", error.to_string()))
            });
            (ids.await?, ignored)
        }
        (None, Some(chat)) => {
            let conversation = conversation(&chat, &mut fields)?;
            let ignored = fields.finish(state.config.strict)?;
            (prompt::rendered(&state, conversation).await?.token_ids, ignored)
        }
    };
    let spelled = |id: &u32| state.tokenizer.token(*id).unwrap_or_default();
    let piece = |id: u32| match String::from_utf8(state.tokenizer.token_bytes(id)) {
        Ok(text) => json!(text),
        Err(bytes) => json!(bytes.into_bytes()),
    };
    let with_pieces = request.with_pieces.unwrap_or(false);
    let with_strs = request.return_token_strs.unwrap_or(false);
    let answer =
        axum::Json(Tokenized {
            count: tokens.len(),
            max_model_len: state.engine.limits().max_model_len,
            token_strs: with_strs.then(|| tokens.iter().map(spelled).collect()),
            tokens: tokens
                .into_iter()
                .map(|id| {
                    if with_pieces { Token::Piece { id, piece: piece(id) } } else { Token::Id(id) }
                })
                .collect(),
        });
    Ok(ignored.tell(answer.into_response()))
}

impl RequestBody for DetokenizeRequest {
    fn read(body: &mut BodyReader<'_>) -> Result<Self, ApiError> {
        body.take()
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// `POST /detokenize`.
pub(crate) async fn detokenize(
    State(state): State<AppState>,
    extracted: Extracted<DetokenizeRequest>,
) -> Result<Response, ApiError> {
    let Extracted { body: request, fields, .. } = extracted;
    let ignored = fields.finish(state.config.strict)?;
    let tokens = required(request.tokens, "", "tokens")?;
    let ids = token_ids("tokens", &tokens, state.engine.limits().vocab_size)?;
    let skip_special_tokens = request.skip_special_tokens.unwrap_or(false);
    let tokenizer = state.tokenizer.clone();
    let text = off_thread(move || Ok(tokenizer.decode(&ids, skip_special_tokens))).await?;
    let answer = axum::Json(Detokenized { content: text.clone(), prompt: text });
    Ok(ignored.tell(answer.into_response()))
}
