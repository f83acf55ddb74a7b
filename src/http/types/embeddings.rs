//! Embeddings as JSON.

use serde::{Deserialize, Serialize};

use super::completions::PromptField;
use super::number::Int;

/// The body of `POST /v1/embeddings`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct EmbeddingsRequest {
    pub(crate) model: Option<String>,
    /// A text or several, or the token ids of one or several.
    pub(crate) input: Option<PromptField>,
    pub(crate) encoding_format: Option<String>,
    pub(crate) dimensions: Option<Int>,
    pub(crate) normalize: Option<bool>,
    /// -1 stands for the longest that the model takes.
    pub(crate) truncate_prompt_tokens: Option<Int>,
    pub(crate) truncation_side: Option<String>,
    pub(crate) add_special_tokens: Option<bool>,
    /// Which of the model's prompts is put before every text.
    pub(crate) prompt_name: Option<String>,
    pub(crate) priority: Option<Int>,
    pub(crate) cache_salt: Option<String>,
    pub(crate) deadline_ms: Option<Int>,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EmbeddingList<'a> {
    pub(crate) object: &'static str,
    pub(crate) data: Vec<EmbeddingEntry>,
    pub(crate) model: &'a str,
    pub(crate) usage: EmbeddingUsage,
}

/// The embedding of one input.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct EmbeddingEntry {
    pub(crate) object: &'static str,
    pub(crate) index: usize,
    pub(crate) embedding: Vector,
}

/// The numbers of an embedding, as the request wants them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Vector {
    Float(Vec<f32>),
    /// Of the little-endian bytes.
    Base64(String),
}

/// Token counts of all inputs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EmbeddingUsage {
    pub(crate) prompt_tokens: usize,
    pub(crate) total_tokens: usize,
}
