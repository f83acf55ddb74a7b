//! Anthropic's Messages API as JSON: request, message and stream events.
//!
//! Content blocks and tools stay JSON in [`MessagesRequest`], since what they may hold depends on
//! their type and on who says them; each has a struct here, for whoever has looked at that.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::number::Int;

/// The body of `POST /v1/messages` and of `POST /v1/messages/count_tokens`, beside
/// [`SamplingExtensions`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct MessagesRequest {
    pub(crate) model: Option<String>,
    pub(crate) messages: Option<Vec<InputMessage>>,
    /// A string or a list of text blocks.
    pub(crate) system: Option<Value>,
    pub(crate) max_tokens: Option<Int>,
    pub(crate) stop_sequences: Option<Vec<String>>,
    pub(crate) stream: Option<bool>,
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    pub(crate) top_k: Option<Int>,
    pub(crate) tools: Option<Vec<Value>>,
    pub(crate) tool_choice: Option<ToolChoiceField>,
    pub(crate) thinking: Option<ThinkingField>,
    pub(crate) output_config: Option<OutputConfig>,
    pub(crate) output_format: Option<Value>,
    pub(crate) mcp_servers: Option<Vec<Value>>,
    pub(crate) container: Option<Value>,
    pub(crate) cache_control: Option<Value>,
    pub(crate) diagnostics: Option<Value>,
    pub(crate) inference_geo: Option<Value>,
    pub(crate) speed: Option<Value>,
    pub(crate) user_profile_id: Option<Value>,
}

/// Fields of the other endpoints that Anthropic's API lacks and this server takes here, too.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SamplingExtensions {
    pub(crate) min_p: Option<f64>,
    pub(crate) repetition_penalty: Option<f64>,
    pub(crate) frequency_penalty: Option<f64>,
    pub(crate) presence_penalty: Option<f64>,
    pub(crate) logit_bias: Option<HashMap<String, f64>>,
    pub(crate) seed: Option<Int>,
    pub(crate) stop_token_ids: Option<Vec<Int>>,
    pub(crate) skip_special_tokens: Option<bool>,
    pub(crate) min_tokens: Option<Int>,
    pub(crate) ignore_eos: Option<bool>,
    pub(crate) priority: Option<Int>,
    pub(crate) cache_salt: Option<String>,
    pub(crate) deadline_ms: Option<Int>,
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
}

/// One message of a conversation.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct InputMessage {
    pub(crate) role: String,
    /// A string or a list of content blocks.
    pub(crate) content: Value,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

/// A content block of the type `text`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TextBlock {
    pub(crate) text: String,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

/// A content block of the type `thinking`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ThinkingBlock {
    pub(crate) thinking: String,
    pub(crate) signature: Option<String>,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

/// A content block of the type `tool_use`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToolUseBlock {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) input: Map<String, Value>,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

/// A content block of the type `tool_result`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToolResultBlock {
    pub(crate) tool_use_id: String,
    /// A string or a list of text blocks.
    pub(crate) content: Option<Value>,
    pub(crate) is_error: Option<bool>,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

/// A tool that the client runs.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToolDefinition {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) input_schema: Map<String, Value>,
    pub(crate) strict: Option<bool>,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

/// Which tools the answer may or must use.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ToolChoiceField {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) disable_parallel_tool_use: Option<bool>,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

/// Whether and how much to think.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ThinkingField {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    pub(crate) budget_tokens: Option<Int>,
    pub(crate) display: Option<String>,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

/// How much effort to make, and what shape the answer has.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct OutputConfig {
    pub(crate) effort: Option<String>,
    pub(crate) format: Option<Value>,
    #[serde(flatten)]
    pub(crate) unknown: Map<String, Value>,
}

/// The answer, whole, or empty at the beginning of a stream.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Message<'a> {
    pub(crate) id: &'a str,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) role: &'static str,
    pub(crate) model: &'a str,
    pub(crate) content: Vec<OutputBlock>,
    #[serde(flatten)]
    pub(crate) end: MessageEnd,
    pub(crate) usage: MessageUsage,
}

/// A piece of the answer's content.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum OutputBlock {
    /// The signature is empty: nobody here checks where thoughts come from.
    Thinking {
        thinking: String,
        signature: &'static str,
    },
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: Map<String, Value>,
    },
}

/// What a content block gains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "type")]
pub(crate) enum BlockDelta {
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: &'static str },
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
}

/// How the answer ended; both are null before it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct MessageEnd {
    pub(crate) stop_reason: Option<&'static str>,
    pub(crate) stop_sequence: Option<String>,
}

/// Token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct MessageUsage {
    /// Prompt tokens that had to be computed.
    pub(crate) input_tokens: usize,
    /// What is cached costs nothing here, so nothing is counted as written.
    pub(crate) cache_creation_input_tokens: usize,
    /// Prompt tokens that did not have to be computed.
    pub(crate) cache_read_input_tokens: usize,
    pub(crate) output_tokens: usize,
    pub(crate) output_tokens_details: OutputTokensDetails,
}

/// Part of [`MessageUsage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct OutputTokensDetails {
    pub(crate) thinking_tokens: usize,
}

/// A server-sent event of a streamed answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum StreamEvent<'a> {
    MessageStart { message: Message<'a> },
    ContentBlockStart { index: usize, content_block: OutputBlock },
    ContentBlockDelta { index: usize, delta: BlockDelta },
    ContentBlockStop { index: usize },
    Ping,
    MessageDelta { delta: MessageEnd, usage: MessageUsage },
    MessageStop,
}

impl StreamEvent<'_> {
    /// The event's name, which is its type.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::Ping => "ping",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
        }
    }
}

/// An error, as an answer or as an event.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ErrorObject<'a> {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) error: ErrorDetail,
    pub(crate) request_id: &'a str,
}

/// Part of [`ErrorObject`].
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ErrorDetail {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

/// The answer of `POST /v1/messages/count_tokens`.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct CountedTokens {
    pub(crate) input_tokens: usize,
}
