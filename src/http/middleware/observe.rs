//! What happens around every request: a request id, a panic caught, a count in the metrics, and a
//! line in the log.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use tracing::Instrument;
use uuid::Uuid;

use crate::http::error::ApiError;
use crate::http::request::id::{REQUEST_ID, RequestId, is_request_id};
use crate::http::state::AppState;
use crate::telemetry;

/// Where W3C's Trace Context has the answer's place in its trace.
const TRACE_RESPONSE: HeaderName = HeaderName::from_static("traceresponse");

/// The layer around every route, but for what rewrites errors in another protocol's shape.
pub(crate) async fn observe(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let request_id = request_id(request.headers());
    let id = request_id.value.clone();
    request.extensions_mut().insert(request_id);
    let method = method_label(request.method());
    let handler = request.extensions().get::<MatchedPath>().cloned();
    let handler = handler.as_ref().map_or("none", MatchedPath::as_str);
    let headers = request.headers().clone();
    let span = telemetry::request(method, handler, id.to_str().unwrap_or_default(), |name| {
        headers.get(name).and_then(|value| value.to_str().ok())
    });
    let run = AssertUnwindSafe(next.run(request)).catch_unwind();
    let answered = run.instrument(span.clone()).await;
    let _inside = span.enter();
    let mut response = answered.unwrap_or_else(|_panic| {
        tracing::error!(handler, "a handler panicked");
        ApiError::Internal("the server failed to handle the request".to_owned()).into_response()
    });
    let (status, duration) = (response.status().as_u16(), started.elapsed());
    state.metrics.http_response(handler, method, status, duration);
    tracing::debug!(handler, method, status, ?duration, "answered");
    telemetry::answered(&span, status);
    response.headers_mut().insert(REQUEST_ID, id);
    if let Some(place) = telemetry::traceparent(&span)
        && let Ok(place) = HeaderValue::try_from(place)
    {
        response.headers_mut().insert(TRACE_RESPONSE, place);
    }
    response
}

/// Methods are the client's to invent; labels are not.
fn method_label(method: &Method) -> &'static str {
    let known = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"];
    known.into_iter().find(|known| method == known).unwrap_or("other")
}

/// The client's own id, if it is fit for a header and a log, or a new one.
fn request_id(headers: &HeaderMap) -> RequestId {
    let given = headers.get(REQUEST_ID).filter(|value| is_request_id(value.as_bytes()));
    let value = given.cloned().unwrap_or_else(|| {
        let made = Uuid::new_v4().simple().to_string();
        HeaderValue::try_from(made).expect("hexadecimal digits are visible ASCII")
    });
    RequestId { value, given: given.is_some() }
}
