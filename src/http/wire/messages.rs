//! Anthropic's Messages API as JSON: request, message and stream events.
//!
//! Content blocks and tools stay JSON in [`MessagesRequest`], since what they may hold depends on
//! their type and on who says them; each has a struct here, for whoever has looked at that.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::number::Int;
use super::schema::constants;
use super::schema::messages::{
    MessageDiagnostics, MessageEffort, MessageErrorKind, MessageInput, MessageOutputFormat,
    MessageStopReason, MessageTool, MessageToolChoiceKind, StopSequences, SystemContent,
    ThinkingDisplay, ThinkingKind,
};
use super::schema::served::RequestedModel;

/// The body of `POST /v1/messages` and of `POST /v1/messages/count_tokens`, beside
/// [`CommonFields`](super::sampling::CommonFields) and
/// [`ScalarFields`](super::scalars::ScalarFields).
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct MessagesRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    #[schema(value_type = Vec<MessageInput>, min_items = 1)]
    pub(crate) messages: Option<Vec<InputMessage>>,
    /// A string or a list of text blocks.
    #[schema(value_type = Option<SystemContent>)]
    pub(crate) system: Option<Value>,
    /// 0 computes the prompt and answers nothing.
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(crate) max_tokens: Option<Int>,
    #[schema(value_type = Option<StopSequences>)]
    pub(crate) stop_sequences: Option<Vec<String>>,
    pub(crate) stream: Option<bool>,
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub(crate) temperature: Option<f64>,
    #[schema(value_type = Option<Vec<MessageTool>>)]
    pub(crate) tools: Option<Vec<Value>>,
    pub(crate) tool_choice: Option<ToolChoiceField>,
    pub(crate) thinking: Option<ThinkingField>,
    pub(crate) output_config: Option<OutputConfig>,
    #[schema(value_type = Option<MessageOutputFormat>)]
    pub(crate) output_format: Option<Value>,
    /// Asks why the prompt was not in the cache.
    pub(crate) diagnostics: Option<DiagnosticsField>,
    /// A conversation that the server should keep: not supported.
    #[schema(ignore)]
    pub(crate) thread: Option<Value>,
    /// As in chat completions; Anthropic's API has nothing like it.
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
}

/// What a prompt is compared with.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[schema(as = MessageDiagnosticsRequest)]
pub(crate) struct DiagnosticsField {
    /// The message whose prompt it should go on; none before the first.
    pub(crate) previous_message_id: Option<String>,
}

/// One message of a conversation.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct InputMessage {
    pub(crate) role: String,
    /// A string or a list of content blocks.
    pub(crate) content: Value,
}

/// A content block of the type `text`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TextBlock {
    pub(crate) text: String,
}

/// A content block of the type `redacted_thinking`: reasoning that only who made it can read.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct RedactedBlock {
    #[expect(dead_code, reason = "only who made it can read it")]
    pub(crate) data: Option<Value>,
}

/// A content block of the type `image`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ImageBlock {
    pub(crate) source: Value,
}

/// Where the picture of a content block is.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ImageBlockSource {
    /// Base64.
    pub(crate) data: Option<String>,
    #[expect(dead_code, reason = "the bytes say what they are")]
    pub(crate) media_type: Option<String>,
    pub(crate) url: Option<String>,
}

/// A content block of the type `document`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DocumentBlock {
    pub(crate) source: Value,
    pub(crate) title: Option<String>,
    pub(crate) context: Option<String>,
}

/// Where the content of a document is.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DocumentSource {
    /// A text, or base64.
    pub(crate) data: Option<String>,
    pub(crate) media_type: Option<String>,
    /// A text or content blocks.
    pub(crate) content: Option<Value>,
    #[expect(dead_code, reason = "nothing behind it is read")]
    pub(crate) url: Option<String>,
    #[expect(dead_code, reason = "nothing behind it is read")]
    pub(crate) file_id: Option<String>,
}

/// A content block of the type `thinking`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ThinkingBlock {
    pub(crate) thinking: String,
    pub(crate) signature: Option<String>,
}

/// A content block of the type `tool_use`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToolUseBlock {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) input: Map<String, Value>,
}

/// A content block of the type `tool_addition` or `tool_removal`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToolChangeBlock {
    pub(crate) tool: Value,
}

/// A tool that the request or an earlier block defines.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ReferencedTool {
    pub(crate) name: String,
}

/// A tool that a block defines.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DefinedTool {
    pub(crate) definition: Value,
}

/// A content block of the type `tool_result`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToolResultBlock {
    pub(crate) tool_use_id: String,
    /// A string or a list of text blocks.
    pub(crate) content: Option<Value>,
    pub(crate) is_error: Option<bool>,
}

/// A block of a tool's result of the type `tool_reference`: a search found this tool.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToolReferenceBlock {
    pub(crate) tool_name: String,
}

/// `output_config.format` or `output_format` of the type `json_schema`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OutputFormat {
    pub(crate) schema: Option<Value>,
}

/// A tool that the client runs.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ToolDefinition {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) input_schema: Map<String, Value>,
    pub(crate) strict: Option<bool>,
    /// Whether the model is told of it only where a search found it.
    pub(crate) defer_loading: Option<bool>,
}

/// Which tools the answer may or must use.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[schema(as = MessageToolChoice)]
pub(crate) struct ToolChoiceField {
    #[serde(rename = "type")]
    #[schema(value_type = MessageToolChoiceKind)]
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) disable_parallel_tool_use: Option<bool>,
}

/// Whether and how much to think.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[schema(as = Thinking)]
pub(crate) struct ThinkingField {
    #[serde(rename = "type")]
    #[schema(value_type = ThinkingKind)]
    pub(crate) kind: Option<String>,
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub(crate) budget_tokens: Option<Int>,
    #[schema(value_type = Option<ThinkingDisplay>)]
    pub(crate) display: Option<String>,
}

/// How much effort to make, and what shape the answer has.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct OutputConfig {
    #[schema(value_type = Option<MessageEffort>)]
    pub(crate) effort: Option<String>,
    #[schema(value_type = Option<MessageOutputFormat>)]
    pub(crate) format: Option<Value>,
}

/// The answer, whole, or empty at the beginning of a stream.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Message<'a> {
    pub(crate) id: &'a str,
    #[serde(rename = "type")]
    #[schema(schema_with = constants::message)]
    pub(crate) kind: &'static str,
    #[schema(schema_with = constants::assistant)]
    pub(crate) role: &'static str,
    pub(crate) model: &'a str,
    pub(crate) content: Vec<OutputBlock>,
    #[serde(flatten)]
    pub(crate) end: MessageEnd,
    pub(crate) usage: MessageUsage,
    /// Why the prompt was not in the cache, if the request asks and it should have been.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<MessageDiagnostics>)]
    pub(crate) diagnostics: Option<Value>,
}

/// A piece of the answer's content.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = MessageBlock)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum OutputBlock {
    /// The signature is empty, or carries the reasoning if it is not shown.
    Thinking {
        thinking: String,
        signature: String,
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
#[schema(as = MessageBlockDelta)]
#[serde(tag = "type")]
pub(crate) enum BlockDelta {
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
}

/// How the answer ended; both are null before it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct MessageEnd {
    #[schema(value_type = MessageStopReason)]
    pub(crate) stop_reason: Option<&'static str>,
    #[schema(required)]
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
#[schema(as = MessageOutputTokensDetails)]
pub(crate) struct OutputTokensDetails {
    pub(crate) thinking_tokens: usize,
}

/// A server-sent event of a streamed answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = MessageEvent)]
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
#[schema(as = MessageError)]
pub(crate) struct ErrorObject<'a> {
    #[serde(rename = "type")]
    #[schema(schema_with = constants::error)]
    pub(crate) kind: &'static str,
    pub(crate) error: ErrorDetail,
    pub(crate) request_id: &'a str,
}

/// Part of [`ErrorObject`].
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = MessageErrorDetail)]
pub(crate) struct ErrorDetail {
    #[serde(rename = "type")]
    #[schema(value_type = MessageErrorKind)]
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) details: Option<Value>,
}

/// The answer of `POST /v1/messages/count_tokens`.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct CountedTokens {
    pub(crate) input_tokens: usize,
}
