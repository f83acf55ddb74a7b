//! The arguments of a tool call as an object, for protocols that have them so.

use serde_json::{Map, Value};

/// Under what arguments stand that are no JSON object.
const INVALID_JSON: &str = "INVALID_JSON";

/// The object in a text. One that holds none, cut short or broken by the model, is wrapped:
/// `{"INVALID_JSON": text}`, as Anthropic's documentation has it.
pub(crate) fn arguments_object(json: String) -> Map<String, Value> {
    if json.trim().is_empty() {
        return Map::new();
    }
    match serde_json::from_str(&json) {
        Ok(Value::Object(input)) => input,
        _ => Map::from_iter([(INVALID_JSON.to_owned(), Value::String(json))]),
    }
}
