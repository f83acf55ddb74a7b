//! Whose things a request may see: those of its key.

use std::convert::Infallible;

use crate::http::state::AppState;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// The owner of what a request stores: a digest of its key, so that the store knows no key. Where
/// no key is needed, all requests are the same owner's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner(pub(crate) String);

impl FromRequestParts<AppState> for Owner {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}
