//! Every way a request can fail, and the one table from there to a status and an error object.
//!
//! The object is OpenAI's: `{"error": {"message", "type", "param", "code"}}`, all four keys always.
//! A response carries the error itself as well, for protocols with an object of their own to reword.

use std::fmt;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::engine::output::EngineError;
use crate::store::StoreError;

/// `Retry-After` in milliseconds, which OpenAI's clients look for first.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiError {
    /// A value that can't be served; the message names the field, the value and the bound.
    #[error("{message}")]
    Invalid {
        /// What is wrong.
        message: String,
        /// The field, as a path: `messages[0].role`.
        param: Option<String>,
        /// A machine-readable reason, where clients look for one.
        code: Option<&'static str>,
    },
    /// A prompt that doesn't fit the context, alone or with its answer.
    #[error("{0}")]
    ContextExceeded(ContextExceeded),
    /// A request goes on from a conversation that the server should have kept.
    #[error("thread: conversations are not kept here; send all of their messages")]
    ThreadUnsupported,
    /// No key, or one that isn't known.
    #[error("{0}")]
    Authentication(&'static str),
    /// The request names a model that isn't served.
    #[error("the model {0:?} does not exist")]
    ModelNotFound(String),
    /// The server was not started for this, or the key does not open it.
    #[error("{0}")]
    Permission(&'static str),
    /// The model is served, but not to this key.
    #[error("the model {0:?} is not among those that this API key may use")]
    ModelForbidden(String),
    /// There is no such adapter, or nothing to load one from.
    #[error("{0}")]
    AdapterNotFound(String),
    /// No response with this id is kept.
    #[error("Response with id '{0}' not found.")]
    ResponseNotFound(String),
    /// A request goes on from a response that isn't kept.
    #[error("previous_response_id: previous response with id {0:?} not found")]
    PreviousResponseNotFound(String),
    /// Nothing with this id is stored, or it is another key's.
    #[error("No {0} found with id '{1}'.")]
    ObjectNotFound(&'static str, String),
    /// No such route.
    #[error("there is no route {0}")]
    RouteNotFound(String),
    /// The route exists, but not with this method.
    #[error("{0} does not take the method {1}")]
    MethodNotAllowed(String, String),
    /// The client wants another protocol.
    #[error("{0} is not served over WebSocket; send requests over HTTP")]
    UpgradeUnsupported(String),
    /// The body is larger than the server reads.
    #[error("the request body is larger than {0} bytes")]
    BodyTooLarge(usize),
    /// The body stopped coming, or came too slowly.
    #[error("the request body was not there after {0} s")]
    BodyStalled(u64),
    /// The body isn't declared as plain JSON.
    #[error("{0}")]
    UnsupportedMediaType(String),
    /// Too much is waiting.
    #[error("{0}")]
    TooManyRequests(Full),
    /// A limit of the request's key is reached.
    #[error("{0}")]
    KeyLimit(KeyLimit),
    /// The deadline passed before the first token.
    #[error("the deadline of {0} ms passed before the first token")]
    DeadlineExceeded(u64),
    /// The server is not ready, or no longer.
    #[error("{0}")]
    Unavailable(String),
    /// The same, for a number of seconds that is known.
    #[error("{0}")]
    Later(String, u64),
    /// Our fault.
    #[error("{0}")]
    Internal(String),
}

/// How full it is where a request doesn't fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// What there is too much of, as it stands behind a number.
    pub(crate) what: &'static str,
    /// How much there is.
    pub(crate) there: usize,
    /// How much there may be.
    pub(crate) bound: usize,
    /// Seconds until there is probably room.
    pub(crate) retry_after: u64,
}

impl fmt::Display for Full {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, there, bound, retry_after } = self;
        write!(formatter, "{there} {what}, no more than {bound} may; try again in {retry_after} s")
    }
}

/// What a key's limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitKind {
    /// Requests a minute.
    Requests,
    /// Tokens a minute.
    Tokens,
    /// Requests at once.
    Concurrent,
}

impl LimitKind {
    /// As metrics call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Concurrent => "concurrent",
        }
    }
}

/// How a key's limit is reached. The words are those of OpenAI's API, in which clients look for the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyLimit {
    /// What is limited.
    pub(crate) kind: LimitKind,
    /// The most.
    pub(crate) limit: u64,
    /// What is left of it.
    pub(crate) left: u64,
    /// What the request needs.
    pub(crate) asked: u64,
    /// When there is probably enough.
    pub(crate) wait: Duration,
}

impl fmt::Display for KeyLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, limit, left, asked, wait } = self;
        let what = match kind {
            LimitKind::Requests => "requests per min (RPM)",
            LimitKind::Tokens => "tokens per min (TPM)",
            LimitKind::Concurrent => "requests at once",
        };
        let seconds = wait.as_secs_f64();
        write!(
            formatter,
            "Rate limit reached for this API key on {what}: Limit {limit}, Remaining {left}, Requested \
             {asked}. Please try again in {seconds:.3}s."
        )
    }
}

/// How a prompt doesn't fit. Clients find the numbers in the words, which are those that OpenAI's API
/// has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContextExceeded {
    /// Tokens that fit.
    pub(crate) context: usize,
    /// Tokens of the prompt; at least so many, if it was far too long to count.
    pub(crate) prompt: usize,
    /// The field that the prompt came in.
    pub(crate) param: &'static str,
    /// The field for the length of the answer and what it says, if the prompt alone fits.
    pub(crate) answer: Option<(&'static str, usize)>,
}

impl fmt::Display for ContextExceeded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, prompt, param, answer } = self;
        write!(formatter, "This model's maximum context length is {context} tokens. However, ")?;
        match answer {
            None => write!(
                formatter,
                "your prompt has {prompt} tokens, which leaves no room to answer. Please reduce \
                 the length of {param}."
            ),
            Some((name, asked)) => write!(
                formatter,
                "you requested {} tokens ({prompt} in {param}, {asked} by {name}). Please reduce \
                 the length of {param} or {name}.",
                prompt.saturating_add(*asked)
            ),
        }
    }
}

impl ApiError {
    /// A 400 about one field.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), param: Some(param.into()), code: None }
    }

    /// A 400 about a field that changes the answer and isn't supported.
    pub(crate) fn unsupported(param: impl Into<String>, what: &str) -> Self {
        let param = param.into();
        let message = format!("{param}: {what} is not supported");
        Self::Invalid { message, param: Some(param), code: Some("unsupported_value") }
    }

    /// The HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Invalid { .. } | Self::ContextExceeded(_) | Self::ThreadUnsupported => {
                StatusCode::BAD_REQUEST
            }
            Self::Authentication(_) => StatusCode::UNAUTHORIZED,
            Self::Permission(_) | Self::ModelForbidden(_) => StatusCode::FORBIDDEN,
            Self::ModelNotFound(_)
            | Self::AdapterNotFound(_)
            | Self::ResponseNotFound(_)
            | Self::PreviousResponseNotFound(_)
            | Self::ObjectNotFound(..)
            | Self::RouteNotFound(_) => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed(..) => StatusCode::METHOD_NOT_ALLOWED,
            Self::UpgradeUnsupported(_) => StatusCode::UPGRADE_REQUIRED,
            Self::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooManyRequests(_) | Self::KeyLimit(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::DeadlineExceeded(_) | Self::BodyStalled(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Unavailable(_) | Self::Later(..) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The error object.
    pub(crate) fn body(&self) -> Value {
        json!({"error": {
            "message": self.to_string(),
            "type": self.kind(),
            "param": self.param(),
            "code": self.code(),
        }})
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Invalid { .. }
            | Self::ContextExceeded(_)
            | Self::ThreadUnsupported
            | Self::ModelNotFound(_)
            | Self::AdapterNotFound(_)
            | Self::ResponseNotFound(_)
            | Self::PreviousResponseNotFound(_)
            | Self::ObjectNotFound(..)
            | Self::RouteNotFound(_)
            | Self::MethodNotAllowed(..)
            | Self::UpgradeUnsupported(_)
            | Self::BodyTooLarge(_)
            | Self::UnsupportedMediaType(_) => "invalid_request_error",
            Self::Authentication(_) => "authentication_error",
            Self::Permission(_) | Self::ModelForbidden(_) => "permission_error",
            Self::TooManyRequests(_) => "rate_limit_error",
            Self::KeyLimit(KeyLimit { kind: LimitKind::Tokens, .. }) => "tokens",
            Self::KeyLimit(_) => "requests",
            Self::DeadlineExceeded(_) | Self::BodyStalled(_) => "deadline_exceeded",
            Self::Unavailable(_) | Self::Later(..) => "unavailable_error",
            Self::Internal(_) => "server_error",
        }
    }

    fn param(&self) -> Option<&str> {
        match self {
            Self::Invalid { param, .. } => param.as_deref(),
            // The field that a client can change to make it fit.
            Self::ContextExceeded(ContextExceeded { param, answer, .. }) => {
                Some(answer.map_or(param, |(name, _)| name))
            }
            Self::ThreadUnsupported => Some("thread"),
            Self::ModelNotFound(_) | Self::ModelForbidden(_) => Some("model"),
            Self::PreviousResponseNotFound(_) => Some("previous_response_id"),
            _ => None,
        }
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            Self::Invalid { code, .. } => *code,
            Self::ContextExceeded(_) => Some("context_length_exceeded"),
            Self::ThreadUnsupported => Some("unsupported_value"),
            Self::Authentication(_) => Some("invalid_api_key"),
            Self::Permission(_) => Some("not_allowed"),
            Self::ModelForbidden(_) => Some("model_not_allowed"),
            Self::KeyLimit(_) => Some("rate_limit_exceeded"),
            Self::ModelNotFound(_) => Some("model_not_found"),
            Self::AdapterNotFound(_) => Some("adapter_not_found"),
            Self::ResponseNotFound(_) => Some("response_not_found"),
            Self::PreviousResponseNotFound(_) => Some("previous_response_not_found"),
            Self::ObjectNotFound(..) => Some("not_found"),
            Self::RouteNotFound(_) => Some("route_not_found"),
            Self::MethodNotAllowed(..) => Some("method_not_allowed"),
            Self::UpgradeUnsupported(_) => Some("upgrade_unsupported"),
            Self::BodyTooLarge(_) => Some("body_too_large"),
            Self::UnsupportedMediaType(_) => Some("unsupported_media_type"),
            Self::TooManyRequests(_) => Some("queue_full"),
            Self::DeadlineExceeded(_) => Some("deadline_exceeded"),
            Self::BodyStalled(_) => Some("body_stalled"),
            Self::Unavailable(_) | Self::Later(..) | Self::Internal(_) => None,
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        match self {
            Self::TooManyRequests(full) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(full.retry_after));
            }
            Self::KeyLimit(limit) => {
                let milliseconds = u64::try_from(limit.wait.as_millis()).unwrap_or(u64::MAX);
                let seconds = HeaderValue::from(milliseconds.div_ceil(1000).max(1));
                headers.insert(header::RETRY_AFTER, seconds);
                headers.insert(RETRY_AFTER_MS, HeaderValue::from(milliseconds.max(1)));
            }
            Self::Unavailable(_) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::Later(_, seconds) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(*seconds));
            }
            Self::UpgradeUnsupported(_) => {
                headers.insert(header::UPGRADE, HeaderValue::from_static("HTTP/1.1"));
            }
            Self::Authentication(_) => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        headers
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status(), self.headers(), axum::Json(self.body())).into_response();
        // For routes whose clients expect another object.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::NotRunning => Self::Unavailable(error.to_string()),
            EngineError::Rejected(message) => Self::Invalid { message, param: None, code: None },
            EngineError::StepFailed(_) => Self::Internal(error.to_string()),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "a request needs the store");
        match error {
            StoreError::Locked(_) => Self::Internal(error.to_string()),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_always_has_four_keys() {
        for error in [
            ApiError::field("top_p", "top_p must be in (0, 1], got 2"),
            ApiError::Authentication("no key"),
            ApiError::Internal("broken".to_owned()),
        ] {
            let body = error.body();
            let keys: Vec<&String> = body["error"].as_object().unwrap().keys().collect();
            assert_eq!(keys, ["message", "type", "param", "code"]);
        }
    }

    #[test]
    fn engine_errors_tell_who_is_at_fault() {
        let status = |error: EngineError| ApiError::from(error).status().as_u16();
        assert_eq!(status(EngineError::NotRunning), 503);
        assert_eq!(status(EngineError::Rejected("too long".to_owned())), 400);
        assert_eq!(status(EngineError::StepFailed("nan".to_owned())), 500);
    }
}
