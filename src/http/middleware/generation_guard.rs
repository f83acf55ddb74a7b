//! Refusals of requests for text, where the model only embeds or only transcribes.

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;

use crate::http::error::ApiError;
use crate::http::state::AppState;
use crate::http::state::speech;

const EMBEDDINGS: &str = "/v1/embeddings";
/// What a model that continues no texts may be asked below `/v1/`.
const VECTORS: [&str; 5] = [EMBEDDINGS, "/v1/rerank", "/v1/score", "/v1/classify", "/v1/pooling"];

/// Routes that compute nothing themselves, and those of speech, which have a model of their own.
const OTHERS: [&str; 3] = ["/v1/files", "/v1/batches", speech::ROUTES];

/// Answers 400 to what asks for text, where the model only embeds, and to what asks for anything but
/// transcripts, where it only transcribes.
pub(crate) async fn refuse_generation(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    let other = OTHERS.iter().any(|route| path.starts_with(route));
    let transcribes = state.speech.as_ref().is_some_and(|speech| speech.is_alone);
    let embeds = VECTORS.contains(&path) && !transcribes;
    let asks_for_text = (path.starts_with("/v1/") && !embeds && !other)
        || matches!(path, "/api/chat" | "/api/generate");
    let generates = request.method() == Method::POST && asks_for_text;
    if generates && !state.engine.limits().generates {
        let message = if transcribes {
            format!("the model only transcribes speech: {path} is not served, {} is", speech::ROUTE)
        } else {
            format!("the model only embeds texts: {path} is not served, {EMBEDDINGS} is")
        };
        return Err(ApiError::Invalid { message, param: None, code: Some("unsupported_route") });
    }
    Ok(next.run(request).await)
}
