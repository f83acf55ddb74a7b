//! The tools of a Messages request, and which of them may be called.

use serde_json::{Map, Value, json};

use crate::http::error::ApiError;
use crate::http::generate::chat_request::{Function, Tool, ToolChoice};
use crate::http::request::fields::{FieldReader, required, text_member};
use crate::http::wire::messages::{ToolChoiceField, ToolDefinition};

/// A tool that the client runs. What Anthropic runs itself, or has a schema of its own for, is left
/// out and named as ignored.
pub(super) fn tool(
    value: &Value,
    path: &str,
    fields: &mut FieldReader,
) -> Result<Option<Tool>, ApiError> {
    if text_member(value, "type").is_some_and(is_hosted) {
        fields.ignore(path);
        return Ok(None);
    }
    if let Some(kind) = value.get("type").filter(|kind| !kind.is_null() && *kind != "custom") {
        let message = format!("{path}: tools of the type {kind} are not supported, only custom");
        let param = Some(format!("{path}.type"));
        return Err(ApiError::Invalid { message, param, code: Some("unsupported_value") });
    }
    let tool: ToolDefinition = fields.variant(value, path)?;
    let ToolDefinition { name, description, input_schema, strict, defer_loading } = tool;
    let name = required(Some(name).filter(|name| !name.is_empty()), path, "name")?;
    let mut shown = Map::new();
    shown.insert("name".to_owned(), json!(name));
    if let Some(description) = description {
        shown.insert("description".to_owned(), Value::String(description));
    }
    let parameters = Value::Object(input_schema);
    shown.insert("parameters".to_owned(), parameters.clone());
    if let Some(strict) = strict {
        shown.insert("strict".to_owned(), Value::Bool(strict));
    }
    let function = Function { name, parameters, strict: strict.unwrap_or(false), text: None };
    let definition = json!({"type": "function", "function": shown});
    let deferred = defer_loading == Some(true);
    Ok(Some(Tool { function, definition, deferred, removed: false }))
}

/// Whether a type names a version of one of Anthropic's own tools: `web_search_20250305`.
pub(super) fn is_hosted(kind: &str) -> bool {
    let version = kind.rsplit_once('_').map(|(_, version)| version);
    kind == "mcp_toolset"
        || version.is_some_and(|v| v.len() == 8 && v.bytes().all(|b| b.is_ascii_digit()))
}

/// Which tools the answer may or must use.
pub(super) fn tool_choice(choice: &ToolChoiceField) -> Result<ToolChoice, ApiError> {
    match (choice.kind.as_deref(), &choice.name) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("any"), _) => Ok(ToolChoice::Required),
        (Some("none"), _) => Ok(ToolChoice::Off),
        (Some("tool"), name) => {
            let name = required(name.clone(), "tool_choice", "name")?;
            Ok(ToolChoice::Named(name))
        }
        (kind, _) => {
            let kind = kind.unwrap_or("nothing");
            let message =
                format!("tool_choice.type must be one of auto, any, tool, none, got {kind:?}");
            Err(ApiError::field("tool_choice.type", message))
        }
    }
}
