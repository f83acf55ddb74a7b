//! How the wire looks in the API's description, where serde's structs don't tell: what is read by
//! hand, what is one of a few words, and answers that no struct writes.
//!
//! A written schema is a type without values, so that a field can name it with
//! `#[schema(value_type = ...)]`; its JSON stands beside it in [`components`].

use serde_json::{Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::number::Int;

/// Declares schemas: a name, what it is, and its JSON.
macro_rules! written {
    ($($(#[doc = $doc:literal])* $name:ident: $body:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[allow(dead_code, reason = "some are only named in other schemas")]
            pub(crate) enum $name {}

            impl utoipa::PartialSchema for $name {
                fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                    // Its place; the JSON is put there when the document is made.
                    utoipa::openapi::schema::empty().into()
                }
            }

            impl utoipa::ToSchema for $name {}
        )*

        pub(super) fn components() -> Vec<(&'static str, serde_json::Value)> {
            vec![$((stringify!($name), $crate::http::types::schema::described(concat!($($doc),*), $body))),*]
        }
    };
}

pub(crate) mod answers;
pub(crate) mod chat;
pub(crate) mod constants;
pub(crate) mod events;
pub(crate) mod messages;
pub(crate) mod responses;
pub(crate) mod served;

/// Names and JSON of all written schemas.
pub(crate) fn components() -> Vec<(&'static str, Value)> {
    let written = [
        answers::components(),
        chat::components(),
        events::components(),
        messages::components(),
        responses::components(),
        served::components(),
    ];
    written.into_iter().flatten().collect()
}

impl PartialSchema for Int {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::Integer).into()
    }
}

impl ToSchema for Int {}

fn described(words: &str, mut schema: Value) -> Value {
    schema["description"] = Value::from(words.trim());
    schema
}

/// A reference to a component.
pub(crate) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// One of a few texts.
fn words(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

/// An object in which `required` must not be missing.
fn object(required: &[&str], properties: &Value) -> Value {
    if required.is_empty() {
        return json!({"type": "object", "properties": properties});
    }
    json!({"type": "object", "required": required, "properties": properties})
}

/// An object that its `type` tells from others; the other fields in `required` must be there, too.
fn tagged(kind: &str, required: &[&str], properties: &Value) -> Value {
    let mut schema = object(&[&["type"], required].concat(), properties);
    schema["properties"]["type"] = words(&[kind]);
    schema
}

fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn any_of(schemas: &[Value]) -> Value {
    json!({"anyOf": schemas})
}

fn or_null(schema: Value) -> Value {
    any_of(&[schema, json!({"type": "null"})])
}

fn text() -> Value {
    json!({"type": "string"})
}

/// A text, or null for none.
fn optional_text() -> Value {
    json!({"type": ["string", "null"]})
}

/// What can be counted.
fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn token_ids() -> Value {
    list(&reference("TokenId"))
}
