//! Errors in the shape of Anthropic's API: `{"type": "error", "error": {"type", "message"},
//! "request_id"}`.
//!
//! Handlers and layers make one kind of error for all routes, and this rewrites it on the way out
//! where a client of that API listens. The status stays: 503 while the server goes down, where
//! Anthropic has 529, and 408 for a deadline, so that balancers and clients of both kinds agree.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use serde_json::{Value, json};

use crate::http::error::{ApiError, ContextExceeded};
use crate::http::request::id as request_id;
use crate::http::wire::messages::{ErrorDetail, ErrorObject};

/// Where the official clients look for the request's id.
const REQUEST_ID: &str = "request-id";

/// Whether a path belongs to the Messages API.
pub(crate) fn covers(path: &str) -> bool {
    path.strip_prefix("/v1/messages").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The error object.
pub(crate) fn object<'a>(error: &ApiError, request_id: &'a str) -> ErrorObject<'a> {
    let error = ErrorDetail { kind: kind(error), message: message(error), details: details(error) };
    ErrorObject { kind: "error", error, request_id }
}

/// The outermost layer: responses of the Messages routes as their clients expect them, with errors
/// in their shape and the request's id in their header.
pub(crate) async fn adapt(request: Request, next: Next) -> Response {
    if !covers(request.uri().path()) {
        return next.run(request).await;
    }
    let mut response = next.run(request).await;
    let Some(request_id) = response.headers().get(&request_id::REQUEST_ID).cloned() else {
        return response;
    };
    response.headers_mut().insert(REQUEST_ID, request_id.clone());
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
    let object = object(&error, request_id.to_str().unwrap_or_default());
    let body = serde_json::to_vec(&object).expect("an error object has string keys");
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}

/// In the words of Anthropic's API where clients parse them, to ask for less or to compact the
/// conversation.
fn message(error: &ApiError) -> String {
    match error {
        ApiError::ContextExceeded(ContextExceeded { context, prompt, answer: None, .. }) => {
            format!("prompt is too long: {prompt} tokens > {context} maximum")
        }
        ApiError::ContextExceeded(ContextExceeded {
            context,
            prompt,
            answer: Some((name, asked)),
            ..
        }) => format!(
            "input length and `{name}` exceed context limit: {prompt} + {asked} > {context}, \
             decrease input length or `{name}` and try again"
        ),
        error => error.to_string(),
    }
}

/// What the official clients look at to do without what isn't supported.
fn details(error: &ApiError) -> Option<Value> {
    let code = "thread_unsupported_request";
    matches!(error, ApiError::ThreadUnsupported)
        .then(|| json!({"error_code": code, "unsupported": ["thread"]}))
}

fn kind(error: &ApiError) -> &'static str {
    match error {
        ApiError::Invalid { .. }
        | ApiError::ContextExceeded(_)
        | ApiError::ThreadUnsupported
        | ApiError::MethodNotAllowed(..)
        | ApiError::UpgradeUnsupported(_)
        | ApiError::UnsupportedMediaType(_) => "invalid_request_error",
        ApiError::Authentication(_) => "authentication_error",
        ApiError::Permission(_) | ApiError::ModelForbidden(_) => "permission_error",
        ApiError::ModelNotFound(_)
        | ApiError::AdapterNotFound(_)
        | ApiError::ResponseNotFound(_)
        | ApiError::PreviousResponseNotFound(_)
        | ApiError::ObjectNotFound(..)
        | ApiError::RouteNotFound(_) => "not_found_error",
        ApiError::BodyTooLarge(_) => "request_too_large",
        ApiError::TooManyRequests(_) | ApiError::KeyLimit(_) => "rate_limit_error",
        ApiError::DeadlineExceeded(_) | ApiError::BodyStalled(_) => "timeout_error",
        ApiError::Unavailable(_) | ApiError::Later(..) => "overloaded_error",
        ApiError::Internal(_) => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_messages_routes_are_covered() {
        assert!(covers("/v1/messages") && covers("/v1/messages/count_tokens"));
        assert!(!covers("/v1/messagesx") && !covers("/v1/models") && !covers("/"));
    }
}
