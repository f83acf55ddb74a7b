//! The `{id}` in a path.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::http::error::ApiError;
use crate::http::state::AppState;

/// What stands there, decoded.
#[derive(Debug)]
pub(crate) struct PathId(pub(crate) String);

impl FromRequestParts<AppState> for PathId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(id)| Self(id)).map_err(|_| {
            let message = format!("the id in {} is not UTF-8", parts.uri.path());
            ApiError::field("id", message)
        })
    }
}
