//! Errors as clients of text-embeddings-inference have them: a text and a kind, `{"error": text,
//! "error_type": kind}`, under statuses of its own.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::http::error::ApiError;
use crate::http::wire::tei::TeiErrorObject;

/// Whether a path belongs to this API alone.
pub(crate) fn covers(path: &str) -> bool {
    matches!(path, "/embed" | "/embed_all" | "/embed_sparse" | "/predict" | "/similarity" | "/info")
}

/// Whether a path has requests of this API among others: its errors are in this shape where the body is.
pub(crate) fn shares(path: &str) -> bool {
    matches!(path, "/rerank" | "/invocations")
}

/// The layer around this API's routes, whose errors have their own shape.
pub(crate) async fn adapt(request: Request, next: Next) -> Response {
    if !covers(request.uri().path()) {
        return next.run(request).await;
    }
    adapted(next.run(request).await)
}

/// The answer to a request that failed, on a path that this API shares.
pub(crate) fn response(error: ApiError) -> Response {
    adapted(error.into_response())
}

/// The same response, with the error in it told in this API's shape.
fn adapted(mut response: Response) -> Response {
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
    let (status, error_type) = kind(&error);
    let object = TeiErrorObject { error: error.to_string(), error_type };
    let body = serde_json::to_vec(&object).expect("an error object has string keys");
    let (mut parts, _) = response.into_parts();
    parts.status = status;
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

/// The status and the kind of an error.
fn kind(error: &ApiError) -> (StatusCode, &'static str) {
    let too_long = error.body()["error"]["code"] == "context_length_exceeded";
    match error {
        _ if too_long => (StatusCode::PAYLOAD_TOO_LARGE, "Validation"),
        ApiError::Invalid { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "Validation"),
        ApiError::TooManyRequests(_) | ApiError::KeyLimit(_) => {
            (StatusCode::TOO_MANY_REQUESTS, "Overloaded")
        }
        ApiError::Unavailable(_) | ApiError::Later(..) => {
            (StatusCode::SERVICE_UNAVAILABLE, "Unhealthy")
        }
        ApiError::Internal(_) => (StatusCode::FAILED_DEPENDENCY, "Backend"),
        other => (other.status(), "Validation"),
    }
}
