//! What an answer must be like, as JSON: the variants of `response_format`, and the objects in
//! `structured_outputs`. Each variant is read once its `type` is known.

use serde::Deserialize;
use serde_json::Value;

/// `response_format` of the type `text`, and others without members.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct PlainFormat {}

/// `response_format` of the type `json_object`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct JsonObjectFormat {
    /// A schema without a name, as llama.cpp, Together and Fireworks take it.
    pub(crate) schema: Option<Value>,
}

/// `response_format` of the type `json_schema`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct JsonSchemaFormat {
    pub(crate) json_schema: Option<NamedSchema>,
}

/// A schema with a name.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct NamedSchema {
    pub(crate) name: Option<String>,
    pub(crate) schema: Option<Value>,
}

/// `response_format` of the type `structural_tag`, and the object in `structured_outputs`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct StructuralTagFormat {
    pub(crate) structures: Option<Vec<Structure>>,
    pub(crate) triggers: Option<Vec<String>>,
}

/// A part of the answer between two texts.
#[derive(Debug, Deserialize)]
pub(crate) struct Structure {
    pub(crate) begin: String,
    pub(crate) schema: Option<Value>,
    pub(crate) end: String,
}

/// `structured_outputs`, of which exactly one is given.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct StructuredOutputsField {
    /// A schema, or its JSON in a string.
    pub(crate) json: Option<Value>,
    pub(crate) json_object: Option<bool>,
    pub(crate) regex: Option<String>,
    /// A list of strings.
    pub(crate) choice: Option<Value>,
    pub(crate) grammar: Option<String>,
    /// An object, or its JSON in a string.
    pub(crate) structural_tag: Option<Value>,
}
