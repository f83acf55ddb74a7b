//! Embeddings as JSON.

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::chat::ChatMessage;
use super::completions::Prompt;
use super::number::Int;
use super::schema::chat::{
    ByteOrder, ChatInputMessage, EmbeddingInput, EmbeddingNumbers, EncodingFormat, TruncationSide,
};
use super::schema::constants;
use super::schema::served::{EmbeddingDimensions, RequestedModel, TruncatedLength};

/// The body of `POST /v1/embeddings`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct EmbeddingsRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    /// A text or several, or the token ids of one or several.
    #[schema(value_type = Option<EmbeddingInput>)]
    pub(crate) input: Option<InputsField>,
    #[schema(value_type = Option<EncodingFormat>)]
    pub(crate) encoding_format: Option<String>,
    /// Jina's name for `encoding_format`.
    #[schema(value_type = Option<EncodingFormat>)]
    pub(crate) embedding_type: Option<String>,
    /// The type of numbers in base64 and bytes.
    #[schema(value_type = Option<EmbeddingNumbers>)]
    pub(crate) embed_dtype: Option<String>,
    /// The order of each number's bytes.
    #[schema(value_type = Option<ByteOrder>)]
    pub(crate) endianness: Option<String>,
    #[schema(value_type = Option<EmbeddingDimensions>)]
    pub(crate) dimensions: Option<Int>,
    pub(crate) normalize: Option<bool>,
    /// Jina's name for `normalize`.
    pub(crate) normalized: Option<bool>,
    /// vLLM's name for `normalize`.
    pub(crate) use_activation: Option<bool>,
    /// -1 stands for the longest that the model takes.
    #[schema(value_type = Option<TruncatedLength>)]
    pub(crate) truncate_prompt_tokens: Option<Int>,
    /// Whether texts that are too long are cut, where `truncate_prompt_tokens` doesn't say.
    pub(crate) truncate: Option<bool>,
    #[schema(value_type = Option<TruncationSide>)]
    pub(crate) truncation_side: Option<String>,
    pub(crate) add_special_tokens: Option<bool>,
    /// Which of the model's prompts is put before every text.
    pub(crate) prompt_name: Option<String>,
    /// What texts are embedded for, such as `retrieval.query`: chooses the adapter and the prompt of
    /// models that have some for tasks.
    pub(crate) task: Option<String>,
    #[schema(value_type = Option<i32>)]
    pub(crate) priority: Option<Int>,
    #[schema(min_length = 1, max_length = 128)]
    pub(crate) cache_salt: Option<String>,
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 86_400_000)]
    pub(crate) deadline_ms: Option<Int>,
}

/// A conversation in place of a text, where a route takes one.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ConversationFields {
    #[schema(value_type = Option<Vec<ChatInputMessage>>, min_items = 1)]
    pub(crate) messages: Option<Vec<ChatMessage>>,
    /// False, if it isn't said.
    pub(crate) add_generation_prompt: Option<bool>,
    pub(crate) continue_final_message: Option<bool>,
    /// Instead of the model's, on servers that trust it.
    pub(crate) chat_template: Option<String>,
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
}

/// What is embedded: a text, the token ids of one, or a list in which texts and token ids may stand
/// beside each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InputsField(pub(crate) Vec<Prompt>);

const EXPECTED: &str = "a string, a list of token ids, or a list of strings and lists of token ids";

impl<'de> Deserialize<'de> for InputsField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = || D::Error::custom(format!("expected {EXPECTED}"));
        let ids = |list: Value| Vec::deserialize(list).map(Prompt::Tokens).map_err(|_| expected());
        let one = |input: Value| match input {
            Value::String(text) => Ok(Prompt::Text(text)),
            list @ Value::Array(_) => ids(list),
            _ => Err(expected()),
        };
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(vec![Prompt::Text(text)])),
            Value::Array(list) if list.first().is_some_and(Value::is_number) => {
                Ok(Self(vec![ids(Value::Array(list))?]))
            }
            Value::Array(list) => list.into_iter().map(one).collect::<Result<_, _>>().map(Self),
            _ => Err(expected()),
        }
    }
}

/// The answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EmbeddingList<'a> {
    #[schema(schema_with = constants::list)]
    pub(crate) object: &'static str,
    pub(crate) data: Vec<EmbeddingEntry>,
    pub(crate) model: &'a str,
    pub(crate) usage: EmbeddingUsage,
}

/// The embedding of one input.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EmbeddingEntry {
    #[schema(schema_with = constants::embedding)]
    pub(crate) object: &'static str,
    pub(crate) index: usize,
    pub(crate) embedding: Vector,
}

/// The numbers of an embedding, as the request wants them.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Vector {
    Float(Vec<f32>),
    /// Of the bytes.
    Base64(String),
}

/// Token counts of all inputs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct EmbeddingUsage {
    pub(crate) prompt_tokens: usize,
    pub(crate) total_tokens: usize,
}
