//! The texts that end an answer.

use crate::http::error::ApiError;
use crate::http::wire::bounds::MAX_STOP_STRINGS;

/// Checks how many texts end an answer, and that none is empty; `name` is the field's.
pub(crate) fn stop_strings(name: &str, texts: Option<&[String]>) -> Result<Vec<String>, ApiError> {
    let texts = texts.unwrap_or_default();
    if texts.len() > MAX_STOP_STRINGS {
        let message =
            format!("{name} must have at most {MAX_STOP_STRINGS} strings, got {}", texts.len());
        return Err(ApiError::field(name, message));
    }
    if texts.iter().any(String::is_empty) {
        return Err(ApiError::field(name, format!("{name} must not contain an empty string")));
    }
    Ok(texts.to_vec())
}
