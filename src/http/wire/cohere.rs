//! Embeddings in the shape of Cohere's API.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::number::Int;
use super::schema::served::{EmbeddingDimensions, RequestedModel};

/// The body of `POST /v2/embed`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CohereEmbedRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    /// What the texts are for: `search_document`, `search_query`, `classification`, `clustering`, or
    /// the name of one of the model's prompts.
    pub(crate) input_type: Option<String>,
    #[schema(value_type = Option<Vec<String>>, min_items = 1)]
    pub(crate) texts: Option<Vec<String>>,
    /// Texts as parts; pictures are refused.
    pub(crate) inputs: Option<Vec<CohereInput>>,
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub(crate) max_tokens: Option<Int>,
    #[schema(value_type = Option<EmbeddingDimensions>)]
    pub(crate) output_dimension: Option<Int>,
    /// `float`, `int8`, `uint8`, `binary`, `ubinary` and `base64`.
    pub(crate) embedding_types: Option<Vec<String>>,
    /// What is done with long texts: `NONE` refuses them, `START` and `END` say what they lose.
    pub(crate) truncate: Option<String>,
    #[schema(value_type = Option<i32>)]
    pub(crate) priority: Option<Int>,
}

/// A text in parts.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CohereInput {
    pub(crate) content: Vec<CoherePart>,
}

/// A part of a text.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CoherePart {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) text: Option<String>,
}

/// The answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct CohereEmbedAnswer {
    pub(crate) id: String,
    pub(crate) response_type: &'static str,
    /// The vectors of each type that was asked for.
    #[schema(value_type = Object)]
    pub(crate) embeddings: Map<String, Value>,
    pub(crate) texts: Vec<String>,
    #[schema(value_type = Object)]
    pub(crate) meta: Value,
}
