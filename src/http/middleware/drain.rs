//! What changes for requests while the server goes down.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Version, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::http::error::ApiError;
use crate::http::state::AppState;

/// Answers 503 while the server goes down, but for the routes that tell about it. Connections end
/// with their answer from the signal on, so that clients which keep them come to another server.
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
    // HTTP/2 has another way to say so, which the connection itself takes.
    let keeps = request.version() <= Version::HTTP_11;
    let mut response = next.run(request).await;
    if keeps && (state.is_leaving() || state.is_draining()) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}
