//! The Responses API as JSON: the request, the items of a conversation, and the response object.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::chat::{StopReason, StreamOptions, TokenLogprob};
use super::number::Int;
use super::schema;
use super::schema::chat::{ReasoningEffort, StopCause};
use super::schema::constants;
use super::schema::responses::{
    FunctionTool, Includable, Metadata, ResponseCacheDiagnostics, ResponseInput,
    ResponseTextFormat, ResponseTool,
};
use super::schema::served::RequestedModel;
use super::usage::{Timings, Usage};

/// The body of `POST /v1/responses`, beside
/// [`SamplingFields`](super::sampling::SamplingFields).
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ResponsesRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    /// A string or a list of items.
    #[schema(value_type = ResponseInput)]
    pub(crate) input: Option<Value>,
    pub(crate) instructions: Option<String>,
    pub(crate) previous_response_id: Option<String>,
    pub(crate) store: Option<bool>,
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub(crate) max_output_tokens: Option<Int>,
    #[schema(value_type = Option<i64>)]
    pub(crate) max_tool_calls: Option<Int>,
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 20)]
    pub(crate) top_logprobs: Option<Int>,
    #[schema(value_type = Option<Vec<Includable>>)]
    pub(crate) include: Option<Vec<String>>,
    #[schema(value_type = Option<Vec<ResponseTool>>)]
    pub(crate) tools: Option<Vec<Value>>,
    #[schema(value_type = Option<schema::chat::ChatToolChoice>)]
    pub(crate) tool_choice: Option<Value>,
    pub(crate) parallel_tool_calls: Option<bool>,
    pub(crate) reasoning: Option<ReasoningField>,
    pub(crate) text: Option<TextField>,
    #[schema(value_type = Option<Metadata>)]
    pub(crate) metadata: Option<Map<String, Value>>,
    pub(crate) truncation: Option<String>,
    pub(crate) background: Option<bool>,
    pub(crate) context_management: Option<Value>,
    pub(crate) conversation: Option<Value>,
    pub(crate) prompt: Option<Value>,
    pub(crate) stream: Option<bool>,
    pub(crate) stream_options: Option<StreamOptions>,
    pub(crate) user: Option<String>,
    pub(crate) safety_identifier: Option<String>,
    pub(crate) prompt_cache_key: Option<String>,
    pub(crate) enable_thinking: Option<bool>,
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
}

/// How the model is to think.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[schema(as = ResponseReasoning)]
pub(crate) struct ReasoningField {
    #[schema(value_type = Option<ReasoningEffort>)]
    pub(crate) effort: Option<String>,
    #[schema(value_type = Option<String>)]
    pub(crate) summary: Option<Value>,
    #[schema(value_type = Option<String>)]
    pub(crate) generate_summary: Option<Value>,
    #[schema(value_type = Option<String>)]
    pub(crate) mode: Option<Value>,
    #[schema(value_type = Option<String>)]
    pub(crate) context: Option<Value>,
}

/// What the text of the answer is to be.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[schema(as = ResponseText)]
pub(crate) struct TextField {
    #[schema(value_type = Option<ResponseTextFormat>)]
    pub(crate) format: Option<Value>,
    pub(crate) verbosity: Option<Value>,
}

/// What went into a response or came out of it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ResponseItem)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Item {
    Message(MessageItem),
    Reasoning(ReasoningItem),
    FunctionCall(FunctionCallItem),
    FunctionCallOutput(FunctionCallOutputItem),
    CustomToolCall(CustomToolCallItem),
    CustomToolCallOutput(FunctionCallOutputItem),
    Compaction(CompactionItem),
}

impl Item {
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Message(item) => &item.id,
            Self::Reasoning(item) => &item.id,
            Self::FunctionCall(item) => &item.id,
            Self::FunctionCallOutput(item) | Self::CustomToolCallOutput(item) => &item.id,
            Self::CustomToolCall(item) => &item.id,
            Self::Compaction(item) => &item.id,
        }
    }
}

/// What somebody said.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ResponseMessageItem)]
pub(crate) struct MessageItem {
    pub(crate) id: String,
    pub(crate) status: ItemStatus,
    pub(crate) role: Role,
    pub(crate) content: Vec<Part>,
}

/// Reasoning of the model. A summary only comes in; nothing here makes one.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ResponseReasoningItem)]
pub(crate) struct ReasoningItem {
    pub(crate) id: String,
    pub(crate) status: ItemStatus,
    pub(crate) summary: Vec<Part>,
    pub(crate) content: Vec<Part>,
    /// The same reasoning, for clients that keep no other; only where the request includes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) encrypted_content: Option<String>,
}

/// The model calls a function.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ResponseFunctionCall)]
pub(crate) struct FunctionCallItem {
    pub(crate) id: String,
    pub(crate) call_id: String,
    /// Whose function it is, if it is one of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) status: ItemStatus,
}

/// The model calls a tool that takes a text.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ResponseCustomToolCall)]
pub(crate) struct CustomToolCallItem {
    pub(crate) id: String,
    pub(crate) call_id: String,
    pub(crate) name: String,
    pub(crate) input: String,
    pub(crate) status: ItemStatus,
}

/// What a function or a custom tool gave.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ResponseFunctionOutput)]
pub(crate) struct FunctionCallOutputItem {
    pub(crate) id: String,
    pub(crate) call_id: String,
    pub(crate) output: FunctionOutput,
    pub(crate) status: ItemStatus,
}

/// A summary of all that went before, packed for clients that keep it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ResponseCompactionItem)]
pub(crate) struct CompactionItem {
    pub(crate) id: String,
    pub(crate) encrypted_content: String,
}

/// As it came: a text, or a list of them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ResponseFunctionOutputText)]
#[serde(untagged)]
pub(crate) enum FunctionOutput {
    Text(String),
    Parts(Vec<Part>),
}

/// Who said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ResponseRole)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    User,
    Assistant,
    System,
    Developer,
}

/// Whether an item is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ResponseItemStatus)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ItemStatus {
    InProgress,
    Completed,
    Incomplete,
}

/// A piece of an item's text.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ResponsePart)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Part {
    InputText {
        text: String,
    },
    InputImage {
        image_url: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Where the picture came from, if it was uploaded before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_id: Option<String>,
    },
    OutputText {
        text: String,
        /// None are made.
        #[schema(max_items = 0)]
        annotations: Vec<Value>,
        logprobs: Vec<TokenLogprob>,
    },
    ReasoningText {
        text: String,
    },
    SummaryText {
        text: String,
    },
}

impl Part {
    /// Text of an answer, with the logprobs of its tokens if they were asked for.
    pub(crate) fn output(text: String, logprobs: Vec<TokenLogprob>) -> Self {
        Self::OutputText { text, annotations: Vec::new(), logprobs }
    }

    /// The text, of a picture an empty one.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::InputText { text }
            | Self::OutputText { text, .. }
            | Self::ReasoningText { text }
            | Self::SummaryText { text } => text,
            Self::InputImage { .. } => "",
        }
    }
}

/// The response object, at any time of its life.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Response)]
pub(crate) struct ResponseObject {
    pub(crate) id: String,
    #[schema(schema_with = constants::response)]
    pub(crate) object: &'static str,
    pub(crate) created_at: u64,
    pub(crate) status: Status,
    #[schema(required)]
    pub(crate) completed_at: Option<u64>,
    #[schema(required)]
    pub(crate) error: Option<ResponseError>,
    #[schema(required)]
    pub(crate) incomplete_details: Option<IncompleteDetails>,
    pub(crate) model: String,
    pub(crate) output: Vec<Item>,
    /// Once it is known.
    #[schema(required)]
    pub(crate) usage: Option<ResponseUsage>,
    #[serde(flatten)]
    pub(crate) settings: Settings,
    /// Ours: the seed that gives the same answer again.
    pub(crate) seed: i64,
    /// Ours: what ended the answer, as in chat completions.
    #[schema(value_type = StopCause)]
    pub(crate) stop_reason: StopReason,
    /// Ours: where the time went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timings: Option<Timings>,
    /// How the prompt goes on that of the response that the request names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ResponseCacheDiagnostics>)]
    pub(crate) prompt_cache_diagnostics: Option<Value>,
}

/// What stands in place of a conversation that was compacted.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct CompactedResponse {
    pub(crate) id: String,
    #[schema(schema_with = constants::response_compaction)]
    pub(crate) object: &'static str,
    pub(crate) created_at: u64,
    /// What the user said, and behind it the summary.
    pub(crate) output: Vec<Item>,
    pub(crate) usage: ResponseUsage,
    /// Ours: the summary was cut, since there was no more room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) incomplete_details: Option<IncompleteDetails>,
}

/// The request's settings as they took effect.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseSettings)]
pub(crate) struct Settings {
    #[schema(required)]
    pub(crate) instructions: Option<String>,
    #[schema(required)]
    pub(crate) previous_response_id: Option<String>,
    /// The conversation that the response is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) conversation: Option<ConversationName>,
    pub(crate) store: bool,
    pub(crate) background: bool,
    #[schema(required)]
    pub(crate) max_output_tokens: Option<i64>,
    #[schema(required)]
    pub(crate) max_tool_calls: Option<i64>,
    #[schema(value_type = Metadata)]
    pub(crate) metadata: Map<String, Value>,
    pub(crate) parallel_tool_calls: bool,
    pub(crate) reasoning: ReasoningSettings,
    pub(crate) text: TextSettings,
    #[schema(value_type = Vec<FunctionTool>)]
    pub(crate) tools: Vec<Value>,
    #[schema(value_type = schema::chat::ChatToolChoice)]
    pub(crate) tool_choice: Value,
    pub(crate) temperature: f64,
    pub(crate) top_p: f64,
    pub(crate) presence_penalty: f64,
    pub(crate) frequency_penalty: f64,
    pub(crate) top_logprobs: i64,
    #[schema(schema_with = constants::disabled)]
    pub(crate) truncation: &'static str,
    #[schema(value_type = schema::chat::ServiceTierName)]
    pub(crate) service_tier: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[schema(required)]
    pub(crate) safety_identifier: Option<String>,
    #[schema(required)]
    pub(crate) prompt_cache_key: Option<String>,
}

/// Names a conversation.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseConversation)]
pub(crate) struct ConversationName {
    pub(crate) id: String,
}

/// Part of [`Settings`].
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseReasoningSettings)]
pub(crate) struct ReasoningSettings {
    #[schema(value_type = Option<ReasoningEffort>, required)]
    pub(crate) effort: Option<String>,
    /// None is made.
    #[schema(required)]
    pub(crate) summary: Option<String>,
}

/// Part of [`Settings`].
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseTextSettings)]
pub(crate) struct TextSettings {
    #[schema(value_type = ResponseTextFormat)]
    pub(crate) format: Value,
    #[schema(schema_with = constants::medium)]
    pub(crate) verbosity: &'static str,
}

/// Where a response is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ResponseStatus)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Queued,
    InProgress,
    Completed,
    Incomplete,
    Failed,
    Cancelled,
}

/// Why a response is not whole.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseIncompleteDetails)]
pub(crate) struct IncompleteDetails {
    #[schema(schema_with = constants::max_output_tokens)]
    pub(crate) reason: &'static str,
}

/// Why a response failed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ResponseError {
    #[schema(schema_with = constants::server_error)]
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// Token counts.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct ResponseUsage {
    input_tokens: usize,
    input_tokens_details: InputTokensDetails,
    output_tokens: usize,
    output_tokens_details: OutputTokensDetails,
    total_tokens: usize,
}

/// Part of [`ResponseUsage`].
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = ResponseInputTokensDetails)]
struct InputTokensDetails {
    cached_tokens: usize,
    /// What a client would be charged for keeping a prompt: nothing.
    cache_write_tokens: usize,
}

/// Part of [`ResponseUsage`].
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = ResponseOutputTokensDetails)]
struct OutputTokensDetails {
    reasoning_tokens: usize,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputTokensDetails {
                cached_tokens: usage.prompt_tokens_details.cached_tokens,
                cache_write_tokens: 0,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: OutputTokensDetails {
                reasoning_tokens: usage.completion_tokens_details.reasoning_tokens,
            },
            total_tokens: usage.total_tokens,
        }
    }
}

/// A page of the items that a response was made from.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = ResponseItemList)]
pub(crate) struct ItemList<'a> {
    #[schema(schema_with = constants::list)]
    pub(crate) object: &'static str,
    pub(crate) data: Vec<&'a Item>,
    #[schema(required)]
    pub(crate) first_id: Option<&'a str>,
    #[schema(required)]
    pub(crate) last_id: Option<&'a str>,
    pub(crate) has_more: bool,
}
