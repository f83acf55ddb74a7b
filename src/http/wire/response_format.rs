//! What an answer must be like, as JSON: the variants of `response_format`, and the objects in
//! `structured_outputs`. Each variant is read once its `type` is known.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::schema::chat::AnySchema;

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

/// What other servers call a field of `structured_outputs`, beside it.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct StructuredAliases {
    /// vLLM's name of `json`.
    #[schema(value_type = Option<AnySchema>)]
    pub(crate) guided_json: Option<Value>,
    /// llama.cpp's name of `json`.
    #[schema(value_type = Option<AnySchema>)]
    pub(crate) json_schema: Option<Value>,
    /// vLLM's name of `regex`.
    pub(crate) guided_regex: Option<String>,
    /// SGLang's name of `regex`.
    pub(crate) regex: Option<String>,
    /// vLLM's name of `choice`.
    pub(crate) guided_choice: Option<Vec<String>>,
    /// vLLM's name of `grammar`.
    pub(crate) guided_grammar: Option<String>,
    /// llama.cpp's name of `grammar`.
    pub(crate) grammar: Option<String>,
    /// SGLang's name of `grammar`.
    pub(crate) ebnf: Option<String>,
}

impl StructuredAliases {
    /// Those that are given, each as the field that it stands for.
    pub(crate) fn given(&self) -> Vec<(&'static str, StructuredOutputsField)> {
        let json = |json| StructuredOutputsField { json: Some(json), ..Default::default() };
        let regex = |regex| StructuredOutputsField { regex: Some(regex), ..Default::default() };
        let grammar =
            |grammar| StructuredOutputsField { grammar: Some(grammar), ..Default::default() };
        let choice = |choice: Vec<String>| StructuredOutputsField {
            choice: Some(Value::from(choice)),
            ..Default::default()
        };
        let all = self.clone();
        let all = [
            ("guided_json", all.guided_json.map(json)),
            ("json_schema", all.json_schema.map(json)),
            ("guided_regex", all.guided_regex.map(regex)),
            ("regex", all.regex.map(regex)),
            ("guided_choice", all.guided_choice.map(choice)),
            ("guided_grammar", all.guided_grammar.map(grammar)),
            ("grammar", all.grammar.map(grammar)),
            ("ebnf", all.ebnf.map(grammar)),
        ];
        all.into_iter().filter_map(|(name, field)| Some((name, field?))).collect()
    }
}
