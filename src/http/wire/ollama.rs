//! Ollama's API as JSON: the bodies of `/api/chat`, `/api/generate`, `/api/embed`,
//! `/api/embeddings` and `/api/show`, and their answers, whole or as lines of a stream.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::chat::TokenLogprob;
use super::number::Int;
use super::schema::chat::{CallArguments, ChatTool, Stop};
use super::schema::constants;
use super::schema::ollama::{
    OllamaDimensions, OllamaDoneReason, OllamaFormat, OllamaInput, OllamaOptions, OllamaThinkLevel,
};
use super::schema::served::{RequestedModel, TokenId};
use super::stop::StopField;

/// The body of `POST /api/chat`, beside [`OllamaFields`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct OllamaChatRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    /// Without any, nothing is asked but that the model is loaded.
    pub(crate) messages: Option<Vec<OllamaMessage>>,
    #[schema(value_type = Option<Vec<ChatTool>>)]
    pub(crate) tools: Option<Vec<Value>>,
}

/// The body of `POST /api/generate`, beside [`OllamaFields`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct OllamaGenerateRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    /// Without one, nothing is asked but that the model is loaded.
    pub(crate) prompt: Option<String>,
    /// A message of the system's before the prompt.
    pub(crate) system: Option<String>,
    /// Whether the prompt is continued as it is, without the chat template.
    pub(crate) raw: Option<bool>,
    /// The token ids of an earlier answer, which this one goes on from.
    #[schema(value_type = Option<Vec<TokenId>>)]
    pub(crate) context: Option<Vec<Int>>,
    /// Pictures, which the model can't see.
    #[schema(value_type = Option<Vec<String>>, max_items = 0)]
    pub(crate) images: Option<Vec<Value>>,
}

/// The fields that `/api/chat` and `/api/generate` share.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct OllamaFields {
    /// True if it isn't said.
    pub(crate) stream: Option<bool>,
    #[schema(value_type = Option<OllamaFormat>)]
    pub(crate) format: Option<Value>,
    #[schema(value_type = Option<OllamaOptions>)]
    pub(crate) options: Option<Value>,
    pub(crate) think: Option<ThinkField>,
    pub(crate) logprobs: Option<bool>,
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 20)]
    pub(crate) top_logprobs: Option<Int>,
}

/// Whether to reason, or how much.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = OllamaThink)]
#[serde(untagged)]
pub(crate) enum ThinkField {
    Flag(bool),
    #[schema(value_type = OllamaThinkLevel)]
    Level(String),
}

/// The options of a request under names of Ollama's own, beside
/// [`CommonFields`](super::sampling::CommonFields) and
/// [`ScalarFields`](super::scalars::ScalarFields).
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[schema(as = OllamaOwnOptions)]
pub(crate) struct OptionFields {
    /// Most tokens of the answer; -1 and -2 for what fits.
    #[schema(value_type = Option<i64>, minimum = -2)]
    pub(crate) num_predict: Option<Int>,
    /// Most tokens of prompt and answer together; more than the server's context changes nothing.
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(crate) num_ctx: Option<Int>,
    #[schema(exclusive_minimum = 0.0)]
    pub(crate) repeat_penalty: Option<f64>,
    #[schema(value_type = Option<Stop>)]
    pub(crate) stop: Option<StopField>,
}

/// The one option that concerns texts to embed.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct EmbedOptionFields {
    pub(crate) num_ctx: Option<Int>,
}

/// One message of a conversation.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct OllamaMessage {
    #[schema(min_length = 1)]
    pub(crate) role: String,
    pub(crate) content: Option<String>,
    /// The reasoning before the content.
    pub(crate) thinking: Option<String>,
    /// Pictures, which the model can't see.
    #[schema(value_type = Option<Vec<String>>, max_items = 0)]
    pub(crate) images: Option<Vec<Value>>,
    pub(crate) tool_calls: Option<Vec<OllamaMessageCall>>,
    /// Of a tool's result: the tool.
    pub(crate) tool_name: Option<String>,
    /// Of a tool's result: the call.
    pub(crate) tool_call_id: Option<String>,
}

/// A tool call that the assistant made earlier.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct OllamaMessageCall {
    pub(crate) id: Option<String>,
    pub(crate) function: OllamaMessageFunction,
}

/// Which function, with what.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub(crate) struct OllamaMessageFunction {
    pub(crate) name: String,
    /// An object, or JSON in a string.
    #[schema(value_type = Option<CallArguments>)]
    pub(crate) arguments: Option<Value>,
}

/// The body of `POST /api/embed`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct OllamaEmbedRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    #[schema(value_type = Option<OllamaInput>)]
    pub(crate) input: Option<Value>,
    /// Whether texts are cut that are too long: they are, if it isn't said.
    pub(crate) truncate: Option<bool>,
    #[schema(value_type = Option<OllamaDimensions>)]
    pub(crate) dimensions: Option<Int>,
    #[schema(value_type = Option<Object>)]
    pub(crate) options: Option<Value>,
}

/// The body of `POST /api/embeddings`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct OllamaEmbeddingsRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    pub(crate) prompt: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub(crate) options: Option<Value>,
}

/// The body of `POST /api/show`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct OllamaShowRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    /// What `model` was called before.
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) name: Option<String>,
}

/// The answer of `POST /api/chat`, whole or a line of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct OllamaChatAnswer<'a> {
    pub(crate) model: &'a str,
    pub(crate) created_at: String,
    pub(crate) message: OllamaAnswerMessage,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logprobs: Option<Vec<TokenLogprob>>,
    #[serde(flatten)]
    pub(crate) end: OllamaEnd,
}

/// The answer of `POST /api/generate`, whole or a line of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct OllamaGenerateAnswer<'a> {
    pub(crate) model: &'a str,
    pub(crate) created_at: String,
    pub(crate) response: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    pub(crate) thinking: String,
    /// The token ids of prompt and answer, at the end; a later request can go on from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) logprobs: Option<Vec<TokenLogprob>>,
    #[serde(flatten)]
    pub(crate) end: OllamaEnd,
}

/// What the model says, or a piece of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct OllamaAnswerMessage {
    #[schema(schema_with = constants::assistant)]
    pub(crate) role: &'static str,
    pub(crate) content: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    pub(crate) thinking: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub(crate) tool_calls: Vec<OllamaToolCall>,
}

/// A tool call, whole.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct OllamaToolCall {
    pub(crate) id: String,
    pub(crate) function: OllamaFunctionCall,
}

/// Part of [`OllamaToolCall`].
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct OllamaFunctionCall {
    /// Which of the answer's calls.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) arguments: Map<String, Value>,
}

/// Whether the answer is complete; if so, how it ended and what it cost.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct OllamaEnd {
    pub(crate) done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<OllamaDoneReason>)]
    pub(crate) done_reason: Option<&'static str>,
    /// From the request's arrival, in nanoseconds, as all durations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total_duration: Option<u64>,
    /// 0: the model is loaded before requests come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load_duration: Option<u64>,
    /// Tokens of the prompt, those that were found in the cache included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_eval_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_eval_duration: Option<u64>,
    /// Tokens of the answer, the one that ended it included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) eval_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) eval_duration: Option<u64>,
}

/// The answer of `POST /api/embed`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct OllamaEmbedAnswer<'a> {
    pub(crate) model: &'a str,
    /// Of the length 1 each, in the order of the texts.
    pub(crate) embeddings: Vec<Vec<f32>>,
    pub(crate) total_duration: u64,
    pub(crate) load_duration: u64,
    pub(crate) prompt_eval_count: usize,
}

/// The answer of `POST /api/embeddings`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct OllamaEmbeddingsAnswer {
    pub(crate) embedding: Vec<f32>,
}

/// An error, as an answer or as the last line of a stream.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct OllamaError {
    pub(crate) error: String,
}
