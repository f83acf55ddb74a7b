//! The id of a request.

use axum::http::{HeaderName, HeaderValue};

/// Where a request's id stands.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request, in its extensions for handlers that tell it themselves.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

impl RequestId {
    /// With what names the kind of the answer before it.
    pub(crate) fn named(&self, kind: &str) -> String {
        format!("{kind}-{}", self.0.to_str().unwrap_or_default())
    }
}
