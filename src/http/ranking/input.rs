//! The texts of requests, and how many there may be.

use serde_json::Value;

use crate::http::error::ApiError;
use crate::http::generate::field_names::FieldNames;
use crate::http::wire::bounds::MAX_INPUTS;
use crate::http::wire::number::{Int, integer};
use crate::http::wire::texts::{Texts, text_of};

/// What these routes call the fields of all protocols.
pub(super) const NAMES: FieldNames = FieldNames {
    prompt: "documents",
    tools: "tools",
    tool_choice: "tool_choice",
    max_tokens: "max_tokens",
    reasoning_budget: "thinking_token_budget",
};

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
    let text = text_of(field).map(str::to_owned);
    text.ok_or_else(|| ApiError::field(name, format!("{name} must be a string")))
}

/// How many tokens documents are cut to, if they are.
pub(super) fn document_tokens(field: Option<Int>) -> Result<Option<usize>, ApiError> {
    let most = integer("max_tokens_per_doc", field, 1, i64::MAX)?;
    Ok(most.and_then(|most| usize::try_from(most).ok()))
}
