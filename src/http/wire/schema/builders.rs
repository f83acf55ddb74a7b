//! Short ways to write JSON schemas by hand.

use serde_json::{Value, json};

/// The schema with a description.
pub(crate) fn described(words: &str, mut schema: Value) -> Value {
    schema["description"] = Value::from(words.trim());
    schema
}

/// A reference to a component.
pub(crate) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// One of a few texts.
pub(crate) fn words(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

/// An object in which `required` must not be missing.
pub(crate) fn object(required: &[&str], properties: &Value) -> Value {
    if required.is_empty() {
        return json!({"type": "object", "properties": properties});
    }
    json!({"type": "object", "required": required, "properties": properties})
}

/// An object that its `type` tells from others; the other fields in `required` must be there, too.
pub(crate) fn tagged(kind: &str, required: &[&str], properties: &Value) -> Value {
    let mut schema = object(&[&["type"], required].concat(), properties);
    schema["properties"]["type"] = words(&[kind]);
    schema
}

pub(crate) fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

pub(crate) fn any_of(schemas: &[Value]) -> Value {
    json!({"anyOf": schemas})
}

pub(crate) fn or_null(schema: Value) -> Value {
    any_of(&[schema, json!({"type": "null"})])
}

pub(crate) fn text() -> Value {
    json!({"type": "string"})
}

/// A text, or null for none.
pub(crate) fn optional_text() -> Value {
    json!({"type": ["string", "null"]})
}

/// What can be counted.
pub(crate) fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

pub(crate) fn token_ids() -> Value {
    list(&reference("TokenId"))
}
