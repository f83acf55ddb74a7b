//! What happens around every request: a request id, a panic caught, a count in the metrics, a line
//! in the log, and a refusal once the server goes down.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use uuid::Uuid;

use super::error::ApiError;
use super::messages_error;
use super::state::AppState;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_REQUEST_ID_BYTES: usize = 128;

/// The request's id, for handlers that tell it themselves.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

/// The outermost layer of every route.
pub(crate) async fn observe(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let adapts = messages_error::covers(request.uri().path());
    request.extensions_mut().insert(RequestId(id.clone()));
    let method = method_label(request.method());
    let handler = request.extensions().get::<MatchedPath>().cloned();
    let handler = handler.as_ref().map_or("none", MatchedPath::as_str);
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answered.unwrap_or_else(|_panic| {
        tracing::error!(handler, request_id = ?id, "a handler panicked");
        ApiError::Internal("the server failed to handle the request".to_owned()).into_response()
    });
    let (status, duration) = (response.status().as_u16(), started.elapsed());
    state.metrics().http_response(handler, method, status, duration);
    tracing::debug!(handler, method, status, ?duration, request_id = ?id, "answered");
    if adapts {
        response = messages_error::adapted(response, &id);
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

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

/// Methods are the client's to invent; labels are not.
fn method_label(method: &Method) -> &'static str {
    let known = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"];
    known.into_iter().find(|known| method == known).unwrap_or("other")
}

/// The client's own id, if it is fit for a header and a log, or a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(REQUEST_ID).filter(|value| {
        let bytes = value.as_bytes();
        (1..=MAX_REQUEST_ID_BYTES).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    });
    given.cloned().unwrap_or_else(|| {
        let made = Uuid::new_v4().simple().to_string();
        HeaderValue::try_from(made).expect("hexadecimal digits are visible ASCII")
    })
}
