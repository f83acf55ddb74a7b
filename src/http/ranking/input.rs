//! The texts of requests, and how many there may be.

use serde_json::Value;

use crate::http::error::ApiError;
use crate::http::wire::bounds::MAX_INPUTS;
use crate::http::wire::texts::{Texts, text_of};

/// The texts of a field: at least one, and none too many.
pub(super) fn texts(field: Option<Texts>, name: &str) -> Result<Vec<String>, ApiError> {
    let texts = field.ok_or_else(|| ApiError::field(name, format!("{name} is required")))?.all;
    if texts.is_empty() || texts.len() > MAX_INPUTS {
        let message = format!("{name} must have 1 to {MAX_INPUTS} texts, got {}", texts.len());
        return Err(ApiError::field(name, message));
    }
    Ok(texts)
}

/// The only text of a field.
pub(super) fn one_text(field: Option<&Value>, name: &str) -> Result<String, ApiError> {
    let field = field.ok_or_else(|| ApiError::field(name, format!("{name} is required")))?;
    text_of(field).ok_or_else(|| ApiError::field(name, format!("{name} must be a string")))
}
