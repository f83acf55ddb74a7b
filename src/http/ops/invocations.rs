//! `/invocations`: one route for all requests, as SageMaker wants it. The body says which it is.

use axum::extract::State;
use axum::http::{Extensions, HeaderMap};
use axum::response::Response;

use crate::http::error::ApiError;
use crate::http::openai::{chat, completions, embeddings};
use crate::http::request::arrival::Arrival;
use crate::http::request::body::JsonBody;
use crate::http::request::extract::{Extracted, Whole};
use crate::http::request::owner::Owner;
use crate::http::state::AppState;

/// `POST /invocations`: a chat completion, a completion or embeddings.
pub(crate) async fn invocations(
    State(state): State<AppState>,
    owner: Owner,
    headers: HeaderMap,
    JsonBody(json): JsonBody,
) -> Result<Response, ApiError> {
    let arrival = Arrival::now(&headers, &Extensions::new())?;
    let has = |field: &str| json.get(field).is_some_and(|value| !value.is_null());
    let (chats, completes, embeds) = (has("messages"), has("prompt"), has("input"));
    if (chats || completes) && !state.engine.limits().generates {
        return Err(ApiError::unsupported("model", "generating text with a model that embeds"));
    }
    let shared = State(state.clone());
    if chats {
        let request = Extracted::read(&json, arrival, &state)?;
        chat::chat_completions(shared, owner, Whole { json, request }).await
    } else if completes {
        completions::completions(shared, Extracted::read(&json, arrival, &state)?).await
    } else if embeds {
        embeddings::embeddings(shared, Extracted::read(&json, arrival, &state)?).await
    } else {
        let message = "one of messages, prompt and input says what is asked for";
        Err(ApiError::field("messages", message))
    }
}
