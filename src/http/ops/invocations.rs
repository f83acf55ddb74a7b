//! `/invocations`: one route for all requests, as SageMaker wants it. The body says which it is.

use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use axum::response::Response;

use crate::http::error::ApiError;
use crate::http::openai::{chat, completions, embeddings};
use crate::http::request::body::JsonBody;
use crate::http::request::extract::{Extracted, RequestBody};
use crate::http::state::AppState;

/// `POST /invocations`: a chat completion, a completion or embeddings.
pub(crate) async fn invocations(
    State(state): State<AppState>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let again = Request::from_parts(parts.clone(), body);
    let JsonBody(json) = JsonBody::from_request(again, &state).await?;
    let has = |field: &str| json.get(field).is_some_and(|value| !value.is_null());
    let (chats, completes, embeds) = (has("messages"), has("prompt"), has("input"));
    if (chats || completes) && !state.engine.limits().generates {
        return Err(ApiError::unsupported("model", "generating text with a model that embeds"));
    }
    let request = Request::from_parts(parts, Body::from(json.to_string()));
    let shared = State(state.clone());
    if chats {
        chat::chat_completions(shared, extracted(request, &state).await?).await
    } else if completes {
        completions::completions(shared, extracted(request, &state).await?).await
    } else if embeds {
        embeddings::embeddings(shared, extracted(request, &state).await?).await
    } else {
        let message = "one of messages, prompt and input says what is asked for";
        Err(ApiError::field("messages", message))
    }
}

async fn extracted<T: RequestBody>(
    request: Request,
    state: &AppState,
) -> Result<Extracted<T>, ApiError> {
    Extracted::from_request(request, state).await
}
