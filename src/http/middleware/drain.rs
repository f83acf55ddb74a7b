//! Refusals while the server goes down.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::http::error::ApiError;
use crate::http::state::AppState;

/// Answers 503 while the server goes down, but for the routes that tell about it.
pub(crate) async fn refuse_while_draining(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    let tells = path.starts_with("/health") || path == "/metrics";
    if state.is_draining() && !tells {
        return Err(ApiError::Unavailable("the server is shutting down".to_owned()));
    }
    Ok(next.run(request).await)
}
