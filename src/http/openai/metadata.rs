//! The metadata of what is stored: pairs of short texts.

use serde_json::{Map, Value};

use crate::http::error::ApiError;
use crate::http::wire::bounds::{
    MAX_METADATA_KEY_CHARS, MAX_METADATA_PAIRS, MAX_METADATA_VALUE_CHARS,
};

/// Checks metadata, which is absent or has few and short pairs.
pub(crate) fn metadata(
    metadata: Option<Map<String, Value>>,
) -> Result<Map<String, Value>, ApiError> {
    let metadata = metadata.unwrap_or_default();
    if metadata.len() > MAX_METADATA_PAIRS {
        let message = format!(
            "metadata must have at most {MAX_METADATA_PAIRS} pairs, got {}",
            metadata.len()
        );
        return Err(ApiError::field("metadata", message));
    }
    for (key, value) in &metadata {
        let chars = key.chars().count();
        if chars > MAX_METADATA_KEY_CHARS {
            let message = format!(
                "metadata: keys must have at most {MAX_METADATA_KEY_CHARS} characters, got {chars}"
            );
            return Err(ApiError::field("metadata", message));
        }
        let param = format!("metadata.{key}");
        let Some(text) = value.as_str() else {
            return Err(ApiError::field(param.clone(), format!("{param} must be a string")));
        };
        let chars = text.chars().count();
        if chars > MAX_METADATA_VALUE_CHARS {
            let most = MAX_METADATA_VALUE_CHARS;
            let message = format!("{param} must have at most {most} characters, got {chars}");
            return Err(ApiError::field(param, message));
        }
    }
    Ok(metadata)
}
