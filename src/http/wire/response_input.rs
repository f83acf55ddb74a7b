//! The items, tools and formats of a request for a response, as JSON: each variant is read once its
//! `type` is known.

use serde::Deserialize;
use serde_json::{Map, Value};

/// An item of the type `message`.
#[derive(Debug, Deserialize)]
pub(crate) struct MessageInput {
    pub(crate) id: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) role: Option<String>,
    /// A string or a list of parts.
    pub(crate) content: Option<Value>,
}

/// An item of the type `function_call`.
#[derive(Debug, Deserialize)]
pub(crate) struct FunctionCallInput {
    pub(crate) id: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) call_id: Option<String>,
    /// Whose function it is, if it is one of a namespace.
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) arguments: Option<String>,
}

/// An item of the type `custom_tool_call`.
#[derive(Debug, Deserialize)]
pub(crate) struct CustomToolCallInput {
    pub(crate) id: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) call_id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) input: Option<String>,
}

/// An item of the type `function_call_output` or `custom_tool_call_output`.
#[derive(Debug, Deserialize)]
pub(crate) struct FunctionOutputInput {
    pub(crate) id: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) call_id: Option<String>,
    /// A string or a list of parts.
    pub(crate) output: Option<Value>,
}

/// An item of the type `reasoning`.
#[derive(Debug, Deserialize)]
pub(crate) struct ReasoningInput {
    pub(crate) id: Option<String>,
    pub(crate) status: Option<String>,
    pub(crate) summary: Option<Vec<Value>>,
    pub(crate) content: Option<Vec<Value>>,
    pub(crate) encrypted_content: Option<String>,
}

/// An item of the type `compaction`.
#[derive(Debug, Deserialize)]
pub(crate) struct CompactionInput {
    pub(crate) id: Option<String>,
    pub(crate) encrypted_content: Option<String>,
}

/// An item of the type `item_reference`.
#[derive(Debug, Deserialize)]
pub(crate) struct ReferenceInput {
    pub(crate) id: Option<String>,
}

/// A part of the type `input_text`, `output_text`, `reasoning_text` or `summary_text`.
#[derive(Debug, Deserialize)]
pub(crate) struct TextPart {
    pub(crate) text: Option<String>,
}

/// A part of the type `input_image`.
#[derive(Debug, Deserialize)]
pub(crate) struct ImagePart {
    pub(crate) image_url: Option<String>,
    pub(crate) detail: Option<String>,
    /// A file that was uploaded before.
    pub(crate) file_id: Option<String>,
}

/// A part of the type `refusal`.
#[derive(Debug, Deserialize)]
pub(crate) struct RefusalPart {
    pub(crate) refusal: Option<String>,
}

/// A tool of the type `function`.
#[derive(Debug, Deserialize)]
pub(crate) struct FunctionTool {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    /// A JSON schema.
    pub(crate) parameters: Option<Map<String, Value>>,
    pub(crate) strict: Option<bool>,
}

/// A tool of the type `namespace`: functions under one name.
#[derive(Debug, Deserialize)]
pub(crate) struct NamespaceTool {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) tools: Option<Vec<Value>>,
}

/// A tool of the type `custom`, which takes a text.
#[derive(Debug, Deserialize)]
pub(crate) struct CustomTool {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    /// `{"type": "text"}` or a grammar.
    pub(crate) format: Option<Value>,
}

/// `format` of a custom tool.
#[derive(Debug, Deserialize)]
pub(crate) struct CustomFormat {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) syntax: Option<String>,
    pub(crate) definition: Option<String>,
}

/// `text.format` of the type `json_schema`.
#[derive(Debug, Deserialize)]
pub(crate) struct JsonSchemaFormat {
    pub(crate) name: Option<String>,
    pub(crate) schema: Option<Map<String, Value>>,
}
