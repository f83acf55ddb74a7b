//! The id of a request.

use axum::http::{HeaderName, HeaderValue};

/// Where a request's id stands.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request, in its extensions for handlers that tell it themselves.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

impl RequestId {
    /// With what ids of an answer of this kind begin with.
    pub(crate) fn behind(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.0.to_str().unwrap_or_default())
    }
}
