//! Chat completions as JSON: request, response and chunk.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::number::Int;
use super::usage::{Timings, Usage};

/// The body of `POST /v1/chat/completions`, beside
/// [`SamplingFields`](super::sampling::SamplingFields).
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ChatCompletionRequest {
    pub model: Option<String>,
    pub messages: Option<Vec<ChatMessage>>,
    pub tools: Option<Vec<Value>>,
    pub tool_choice: Option<Value>,
    pub parallel_tool_calls: Option<bool>,
    pub logprobs: Option<bool>,
    pub top_logprobs: Option<Int>,
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    pub reasoning_effort: Option<String>,
    pub chat_template_kwargs: Option<Map<String, Value>>,
    pub documents: Option<Vec<Value>>,
    pub add_generation_prompt: Option<bool>,
    pub continue_final_message: Option<bool>,
    pub add_special_tokens: Option<bool>,
}

/// One message of a conversation.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ChatMessage {
    pub role: Option<String>,
    /// A string or a list of parts.
    pub content: Option<Value>,
    pub name: Option<String>,
    pub tool_calls: Option<Vec<MessageToolCall>>,
    pub tool_call_id: Option<String>,
    pub reasoning: Option<String>,
    pub reasoning_content: Option<String>,
    /// What a client copies from a response; it says nothing to the model.
    pub refusal: Option<Value>,
    pub annotations: Option<Value>,
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// A tool call that the assistant made earlier.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct MessageToolCall {
    pub id: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub function: Option<MessageFunctionCall>,
}

/// Which function, with what.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct MessageFunctionCall {
    pub name: Option<String>,
    /// JSON in a string, as the API has it, or the object itself.
    pub arguments: Option<Value>,
}

/// How a stream reports usage.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct StreamOptions {
    pub include_usage: Option<bool>,
    pub continuous_usage_stats: Option<bool>,
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// The answer, whole.
#[derive(Clone, Debug, Serialize)]
pub struct ChatCompletion {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub choices: Vec<ChatChoice>,
    pub usage: Usage,
    pub timings: Timings,
    pub seed: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// One of the answers.
#[derive(Clone, Debug, Serialize)]
pub struct ChatChoice {
    pub index: usize,
    pub message: AssistantMessage,
    pub logprobs: Option<ChatLogprobs>,
    pub finish_reason: &'static str,
    pub stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// What the model said.
#[derive(Clone, Debug, Serialize)]
pub struct AssistantMessage {
    pub role: &'static str,
    pub content: Option<String>,
    pub refusal: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

/// A tool call the model makes.
#[derive(Clone, Debug, Serialize)]
pub struct ToolCall {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub function: FunctionCall,
}

/// Which function, with what.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionCall {
    pub name: String,
    pub arguments: String,
}

/// A piece of a streamed answer.
#[derive(Clone, Debug, Serialize)]
pub struct ChatCompletionChunk<'a> {
    pub id: &'a str,
    pub object: &'static str,
    pub created: u64,
    pub model: &'a str,
    pub choices: Vec<ChatChunkChoice>,
    /// Present when usage was asked for, and null but where it is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<Usage>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// What a chunk adds to one of the answers.
#[derive(Clone, Debug, Serialize)]
pub struct ChatChunkChoice {
    pub index: usize,
    pub delta: ChatDelta,
    pub logprobs: Option<ChatLogprobs>,
    pub finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<Option<StopReason>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// The difference between the answer before a chunk and after it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChatDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallChunk>,
}

/// The beginning of a tool call, with id, type and name, or a piece of its arguments.
#[derive(Clone, Debug, Serialize)]
pub struct ToolCallChunk {
    pub index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    pub function: FunctionCallChunk,
}

/// Part of [`ToolCallChunk`].
#[derive(Clone, Debug, Serialize)]
pub struct FunctionCallChunk {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub arguments: String,
}

/// Logprobs of the tokens of an answer or a chunk.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChatLogprobs {
    pub content: Vec<TokenLogprob>,
    pub refusal: Option<Vec<TokenLogprob>>,
}

/// One token that was drawn, with the alternatives it had.
#[derive(Clone, Debug, Serialize)]
pub struct TokenLogprob {
    #[serde(flatten)]
    pub token: TokenChoice,
    pub top_logprobs: Vec<TokenChoice>,
}

/// One token and how likely it was.
#[derive(Clone, Debug, Serialize)]
pub struct TokenChoice {
    pub token: String,
    pub logprob: f32,
    pub bytes: Vec<u8>,
}

/// What ended an answer: a stop string, the id of a stop token, or `"deadline"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum StopReason {
    Text(String),
    Token(u32),
}
