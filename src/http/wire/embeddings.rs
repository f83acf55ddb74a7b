//! Embeddings as JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::completions::PromptField;
use super::number::Int;
use super::schema::chat::{
    ByteOrder, EmbeddingInput, EmbeddingNumbers, EncodingFormat, TruncationSide,
};
use super::schema::constants;
use super::schema::served::{EmbeddingDimensions, RequestedModel, TruncatedLength};

/// The body of `POST /v1/embeddings`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct EmbeddingsRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    /// A text or several, or the token ids of one or several.
    #[schema(value_type = EmbeddingInput)]
    pub(crate) input: Option<PromptField>,
    #[schema(value_type = Option<EncodingFormat>)]
    pub(crate) encoding_format: Option<String>,
    /// The type of numbers in base64 and bytes.
    #[schema(value_type = Option<EmbeddingNumbers>)]
    pub(crate) embed_dtype: Option<String>,
    /// The order of each number's bytes.
    #[schema(value_type = Option<ByteOrder>)]
    pub(crate) endianness: Option<String>,
    #[schema(value_type = Option<EmbeddingDimensions>)]
    pub(crate) dimensions: Option<Int>,
    pub(crate) normalize: Option<bool>,
    /// vLLM's name for `normalize`.
    pub(crate) use_activation: Option<bool>,
    /// -1 stands for the longest that the model takes.
    #[schema(value_type = Option<TruncatedLength>)]
    pub(crate) truncate_prompt_tokens: Option<Int>,
    #[schema(value_type = Option<TruncationSide>)]
    pub(crate) truncation_side: Option<String>,
    pub(crate) add_special_tokens: Option<bool>,
    /// Which of the model's prompts is put before every text.
    pub(crate) prompt_name: Option<String>,
    #[schema(value_type = Option<i32>)]
    pub(crate) priority: Option<Int>,
    #[schema(min_length = 1, max_length = 128)]
    pub(crate) cache_salt: Option<String>,
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 86_400_000)]
    pub(crate) deadline_ms: Option<Int>,
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
