//! The id of a request.

use axum::http::{HeaderName, HeaderValue};

/// Where a request's id stands.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that a client may give.
pub(crate) const MAX_REQUEST_ID_BYTES: usize = 128;

/// The id of a request, in its extensions for handlers that tell it themselves.
#[derive(Clone, Debug)]
pub(crate) struct RequestId {
    pub(crate) value: HeaderValue,
    /// Whether the client gave it in a header.
    pub(crate) given: bool,
}

impl RequestId {
    /// The header's, else the one in the body, with what ids of an answer of this kind begin with.
    pub(crate) fn or_in_body(&self, prefix: &str, body: Option<&str>) -> String {
        let own = self.value.to_str().unwrap_or_default();
        format!("{prefix}{}", body.filter(|_| !self.given).unwrap_or(own))
    }
}

/// Whether an id is fit for a header and a log.
pub(crate) fn is_request_id(id: &[u8]) -> bool {
    (1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}
