//! Chat completions as JSON: request, response and chunk.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::number::Int;
use super::schema;
use super::schema::chat::{
    CallArguments, ChatContent, ChatInputMessage, ChatRole, ChatToolChoice, ChatTools,
    FinishReason, ReasoningEffort, ReasoningFormat, ServiceTierName, StopCause,
};
use super::schema::constants;
use super::schema::responses::Metadata;
use super::schema::served::RequestedModel;
use super::usage::{ChunkUsage, Timings, Usage};

/// The body of `POST /v1/chat/completions`, beside
/// [`SamplingFields`](super::sampling::SamplingFields).
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ChatCompletionRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    #[schema(value_type = Vec<ChatInputMessage>, min_items = 1)]
    pub(crate) messages: Option<Vec<ChatMessage>>,
    /// Whether the completion can be read again later.
    pub(crate) store: Option<bool>,
    #[schema(value_type = Option<Metadata>)]
    pub(crate) metadata: Option<Map<String, Value>>,
    #[schema(value_type = Option<ChatTools>)]
    pub(crate) tools: Option<Vec<Value>>,
    #[schema(value_type = Option<ChatToolChoice>)]
    pub(crate) tool_choice: Option<Value>,
    pub(crate) parallel_tool_calls: Option<bool>,
    pub(crate) logprobs: Option<bool>,
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 20)]
    pub(crate) top_logprobs: Option<Int>,
    pub(crate) stream: Option<bool>,
    pub(crate) stream_options: Option<StreamOptions>,
    /// Tells where in the prompt's text each token stands, where requests are only rendered.
    pub(crate) return_token_offsets: Option<bool>,
    /// Tells times with every chunk of a stream.
    pub(crate) timings_per_token: Option<bool>,
    #[schema(value_type = Option<ReasoningEffort>)]
    pub(crate) reasoning_effort: Option<String>,
    pub(crate) include_reasoning: Option<bool>,
    pub(crate) separate_reasoning: Option<bool>,
    /// llama.cpp's words for `separate_reasoning`.
    #[schema(value_type = Option<ReasoningFormat>)]
    pub(crate) reasoning_format: Option<String>,
    pub(crate) enable_thinking: Option<bool>,
    /// Instead of the model's, on servers that trust it.
    pub(crate) chat_template: Option<String>,
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
    pub(crate) documents: Option<Vec<Value>>,
    pub(crate) add_generation_prompt: Option<bool>,
    pub(crate) continue_final_message: Option<bool>,
    pub(crate) add_special_tokens: Option<bool>,
}

/// One message of a conversation.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ChatMessage {
    #[schema(value_type = ChatRole)]
    pub(crate) role: Option<String>,
    /// A string or a list of parts.
    #[schema(value_type = Option<ChatContent>)]
    pub(crate) content: Option<Value>,
    pub(crate) name: Option<String>,
    pub(crate) tool_calls: Option<Vec<MessageToolCall>>,
    pub(crate) tool_call_id: Option<String>,
    pub(crate) reasoning: Option<String>,
    pub(crate) reasoning_content: Option<String>,
}

/// A part of a message's content, of the type `text`.
#[derive(Debug, Deserialize)]
pub(crate) struct TextPart {
    pub(crate) text: Option<String>,
}

/// A part of a message's content, of the type `image_url`.
#[derive(Debug, Deserialize)]
pub(crate) struct ImagePart {
    pub(crate) image_url: Option<ImageUrl>,
}

/// Where a picture is, and how closely to look at it.
#[derive(Debug, Deserialize)]
pub(crate) struct ImageUrl {
    pub(crate) url: Option<String>,
    pub(crate) detail: Option<String>,
}

/// A part of a message's content, of the type `input_audio`.
#[derive(Debug, Deserialize)]
pub(crate) struct AudioPart {
    pub(crate) input_audio: Option<InputAudio>,
}

/// A file of sound in base64, and what its format is said to be.
#[derive(Debug, Deserialize)]
pub(crate) struct InputAudio {
    pub(crate) data: Option<String>,
    pub(crate) format: Option<String>,
}

/// A part of a message's content, of the type `audio_url`, as vLLM has it.
#[derive(Debug, Deserialize)]
pub(crate) struct AudioUrlPart {
    pub(crate) audio_url: Option<AudioUrl>,
}

/// Where a file of sound is.
#[derive(Debug, Deserialize)]
pub(crate) struct AudioUrl {
    pub(crate) url: Option<String>,
}

/// A tool of the type `function`.
#[derive(Debug, Deserialize)]
pub(crate) struct FunctionTool {
    pub(crate) function: Option<FunctionDefinition>,
}

/// A function that the client runs.
#[derive(Debug, Deserialize)]
pub(crate) struct FunctionDefinition {
    pub(crate) name: Option<String>,
    #[expect(dead_code, reason = "only the template reads it, in the definition as it came")]
    pub(crate) description: Option<String>,
    /// A JSON schema.
    pub(crate) parameters: Option<Map<String, Value>>,
    pub(crate) strict: Option<bool>,
    /// The schema of what it gives back, which some templates show.
    #[serde(rename = "return")]
    #[expect(dead_code, reason = "only the template reads it, in the definition as it came")]
    pub(crate) returns: Option<Value>,
}

/// `tool_choice` of the type `function`, in either of its shapes.
#[derive(Debug, Deserialize)]
pub(crate) struct FunctionChoice {
    pub(crate) function: Option<NamedFunction>,
    pub(crate) name: Option<String>,
}

/// `tool_choice` of the type `allowed_tools`: in an object of its own, as chat completions have it,
/// or beside the type, as responses do.
#[derive(Debug, Deserialize)]
pub(crate) struct AllowedToolsChoice {
    pub(crate) allowed_tools: Option<AllowedTools>,
    pub(crate) mode: Option<String>,
    pub(crate) tools: Option<Vec<AllowedTool>>,
}

/// The tools that may be called, and whether one must be.
#[derive(Debug, Deserialize)]
pub(crate) struct AllowedTools {
    pub(crate) mode: Option<String>,
    pub(crate) tools: Option<Vec<AllowedTool>>,
}

/// One of the tools that may be called.
#[derive(Debug, Deserialize)]
pub(crate) struct AllowedTool {
    #[serde(rename = "type")]
    #[expect(dead_code, reason = "there are no tools but functions")]
    pub(crate) kind: Option<String>,
    pub(crate) function: Option<NamedFunction>,
    pub(crate) name: Option<String>,
}

/// The name of a function.
#[derive(Debug, Deserialize)]
pub(crate) struct NamedFunction {
    pub(crate) name: Option<String>,
}

/// A tool call that the assistant made earlier.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct MessageToolCall {
    pub(crate) id: Option<String>,
    #[serde(rename = "type")]
    #[schema(schema_with = constants::function)]
    pub(crate) kind: Option<String>,
    #[schema(value_type = MessageFunctionCall)]
    pub(crate) function: Option<MessageFunctionCall>,
}

/// Which function, with what.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct MessageFunctionCall {
    #[schema(value_type = String)]
    pub(crate) name: Option<String>,
    /// JSON in a string, as the API has it, or the object itself.
    #[schema(value_type = Option<CallArguments>)]
    pub(crate) arguments: Option<Value>,
}

/// How a stream reports usage.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct StreamOptions {
    pub(crate) include_usage: Option<bool>,
    pub(crate) continuous_usage_stats: Option<bool>,
}

/// The answer, whole.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    pub(crate) id: String,
    #[schema(schema_with = constants::chat_completion)]
    pub(crate) object: &'static str,
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) system_fingerprint: String,
    #[schema(value_type = ServiceTierName)]
    pub(crate) service_tier: &'static str,
    pub(crate) choices: Vec<ChatChoice>,
    pub(crate) usage: Usage,
    pub(crate) timings: Timings,
    pub(crate) seed: i64,
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
    #[schema(value_type = Option<schema::chat::PromptLogprobs>)]
    pub(crate) prompt_logprobs: Option<PromptLogprobs>,
}

/// One of the answers.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ChatChoice {
    pub(crate) index: usize,
    pub(crate) message: AssistantMessage,
    #[schema(required)]
    pub(crate) logprobs: Option<ChatLogprobs>,
    #[schema(value_type = FinishReason)]
    pub(crate) finish_reason: &'static str,
    #[schema(value_type = StopCause)]
    pub(crate) stop_reason: StopReason,
    #[schema(required)]
    pub(crate) token_ids: Option<Vec<u32>>,
}

/// What the model said.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct AssistantMessage {
    #[schema(schema_with = constants::assistant)]
    pub(crate) role: &'static str,
    #[schema(required)]
    pub(crate) content: Option<String>,
    #[schema(required)]
    pub(crate) refusal: Option<String>,
    #[serde(flatten)]
    #[schema(value_type = schema::chat::ReasoningText)]
    pub(crate) reasoning: Option<ReasoningText<Option<String>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCall>,
}

/// Reasoning under both names that clients look for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReasoningText<T> {
    pub(crate) reasoning: T,
    pub(crate) reasoning_content: T,
}

impl<T: Clone> ReasoningText<T> {
    pub(crate) fn new(text: T) -> Self {
        Self { reasoning: text.clone(), reasoning_content: text }
    }
}

/// A tool call the model makes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    #[serde(rename = "type")]
    #[schema(schema_with = constants::function)]
    pub(crate) kind: &'static str,
    pub(crate) function: FunctionCall,
}

/// Which function, with what.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct FunctionCall {
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// A piece of a streamed answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletionChunk<'a> {
    pub(crate) id: &'a str,
    #[schema(schema_with = constants::chat_completion_chunk)]
    pub(crate) object: &'static str,
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    pub(crate) system_fingerprint: &'a str,
    #[schema(value_type = ServiceTierName)]
    pub(crate) service_tier: &'static str,
    pub(crate) choices: Vec<ChatChunkChoice>,
    /// Present when usage was asked for, and null but where it is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    pub(crate) usage: Option<ChunkUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timings: Option<Timings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_token_ids: Option<Vec<u32>>,
}

/// What a chunk adds to one of the answers.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ChatChunkChoice {
    pub(crate) index: usize,
    pub(crate) delta: ChatDelta,
    #[schema(required)]
    pub(crate) logprobs: Option<ChatLogprobs>,
    #[schema(value_type = Option<FinishReason>, required)]
    pub(crate) finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<StopCause>)]
    pub(crate) stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_ids: Option<Vec<u32>>,
}

/// The difference between the answer before a chunk and after it.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct ChatDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = constants::assistant)]
    pub(crate) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
    #[serde(flatten)]
    #[schema(value_type = schema::chat::ReasoningText)]
    pub(crate) reasoning: Option<ReasoningText<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_calls: Vec<ToolCallChunk>,
}

/// The beginning of a tool call, with id, type and name, or a piece of its arguments.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ToolCallChunk {
    pub(crate) index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = constants::function)]
    pub(crate) kind: Option<&'static str>,
    pub(crate) function: FunctionCallChunk,
}

/// Part of [`ToolCallChunk`].
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct FunctionCallChunk {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) arguments: String,
}

/// Logprobs of the tokens of an answer or a chunk.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct ChatLogprobs {
    pub(crate) content: Vec<TokenLogprob>,
    #[schema(required)]
    pub(crate) refusal: Option<Vec<TokenLogprob>>,
}

/// One token that was drawn, with the alternatives it had.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct TokenLogprob {
    #[serde(flatten)]
    pub(crate) token: TokenChoice,
    pub(crate) top_logprobs: Vec<TokenChoice>,
}

/// One token and how likely it was.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct TokenChoice {
    pub(crate) token: String,
    pub(crate) logprob: f64,
    pub(crate) bytes: Vec<u8>,
}

/// One entry per token of a prompt: the token itself and the most likely ones at its place, by
/// their ids. Null for the first, which nothing predicts.
pub(crate) type PromptLogprobs = Vec<Option<BTreeMap<u32, PromptTokenLogprob>>>;

/// A token at a place of the prompt.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PromptTokenLogprob {
    pub(crate) logprob: f64,
    /// From 1, best first.
    pub(crate) rank: u32,
    pub(crate) decoded_token: String,
}

/// What ended an answer: a stop string, the id of a stop token, `"deadline"`, or `null` for an
/// end-of-sequence token and for the length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum StopReason {
    Nothing,
    Text(String),
    Token(u32),
}
