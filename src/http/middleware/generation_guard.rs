//! Refusals of requests for text, where the model only embeds.

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;

use crate::http::error::ApiError;
use crate::http::state::AppState;

const EMBEDDINGS: &str = "/v1/embeddings";
/// What a model that continues no texts may be asked below `/v1/`.
const VECTORS: [&str; 5] = [EMBEDDINGS, "/v1/rerank", "/v1/score", "/v1/classify", "/v1/pooling"];

/// Routes that compute nothing themselves.
const STORES: [&str; 2] = ["/v1/files", "/v1/batches"];

/// Answers 400 to what asks for text, where the model only embeds.
pub(crate) async fn refuse_generation(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    let stores = STORES.iter().any(|route| path.starts_with(route));
    let asks_for_text = (path.starts_with("/v1/") && !VECTORS.contains(&path) && !stores)
        || matches!(path, "/api/chat" | "/api/generate");
    let generates = request.method() == Method::POST && asks_for_text;
    if generates && !state.engine.limits().generates {
        let message = format!("the model only embeds texts: {path} is not served, {EMBEDDINGS} is");
        return Err(ApiError::Invalid { message, param: None, code: Some("unsupported_route") });
    }
    Ok(next.run(request).await)
}
