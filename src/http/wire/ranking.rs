//! Reranking, scores of pairs, classes and vectors of any kind as JSON, in the shapes of vLLM, Jina
//! and Cohere.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::embeddings::{EmbeddingUsage, InputsField};
use super::number::Int;
use super::schema::chat::{
    ByteOrder, EmbeddingInput, EmbeddingNumbers, EncodingFormat, TruncationSide,
};
use super::schema::constants;
use super::schema::served::{RequestedModel, TruncatedLength};
use super::texts::{DocumentText, Texts};

/// What every request for vectors or scores may say of how they are computed.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct PoolingFields {
    /// -1 stands for the longest that the model takes.
    #[schema(value_type = Option<TruncatedLength>)]
    pub(crate) truncate_prompt_tokens: Option<Int>,
    #[schema(value_type = Option<TruncationSide>)]
    pub(crate) truncation_side: Option<String>,
    /// Whether scores are probabilities and embeddings have the length 1; else they are as the
    /// model's last layer gives them. What the model's author says, if it isn't said.
    pub(crate) use_activation: Option<bool>,
    /// An older name of `use_activation`.
    pub(crate) activation: Option<bool>,
    /// An older name of `use_activation`.
    pub(crate) softmax: Option<bool>,
    pub(crate) add_special_tokens: Option<bool>,
    #[schema(value_type = Option<i32>)]
    pub(crate) priority: Option<Int>,
    #[schema(min_length = 1, max_length = 128)]
    pub(crate) cache_salt: Option<String>,
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 86_400_000)]
    pub(crate) deadline_ms: Option<Int>,
}

/// The body of `POST /rerank`, `/v1/rerank` and `/v2/rerank`, beside [`PoolingFields`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct RerankRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    #[schema(value_type = String)]
    pub(crate) query: Option<Value>,
    #[schema(value_type = Texts)]
    pub(crate) documents: Option<Texts>,
    /// Only so many results, the best ones; 0 and absent are all.
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(crate) top_n: Option<Int>,
    /// Longer documents are cut to so many tokens; 0 cuts none.
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(crate) max_tokens_per_doc: Option<Int>,
    /// The same of queries.
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(crate) max_tokens_per_query: Option<Int>,
    /// Whether results repeat their documents; true, if it isn't said.
    pub(crate) return_documents: Option<bool>,
    /// What a model is told to look for that answers by words.
    pub(crate) instruction: Option<String>,
    /// Variables of the template of such a model; `instruction` among them counts before the field.
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
    /// What texts are compared by: `embed`, `token_embed` or `token_classify`, as `/pooling` makes
    /// it; what the model is there for, if it isn't said.
    pub(crate) task: Option<String>,
}

/// The answer of reranking.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RerankAnswer<'a> {
    pub(crate) id: String,
    #[schema(schema_with = constants::list)]
    pub(crate) object: &'static str,
    pub(crate) model: &'a str,
    /// Best first.
    pub(crate) results: Vec<RerankResult>,
    pub(crate) usage: EmbeddingUsage,
    pub(crate) meta: RerankMeta,
}

/// A document's place.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct RerankResult {
    /// Where the document stands in the request.
    pub(crate) index: usize,
    pub(crate) relevance_score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) document: Option<DocumentText>,
}

/// What Cohere tells beside results.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct RerankMeta {
    pub(crate) api_version: ApiVersion,
    pub(crate) billed_units: SearchUnits,
    pub(crate) tokens: InputTokens,
}

/// The version of Cohere's API.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct ApiVersion {
    pub(crate) version: &'static str,
}

/// What Cohere bills.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct SearchUnits {
    pub(crate) search_units: usize,
}

/// Tokens of the input.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = RankingInputTokens)]
pub(crate) struct InputTokens {
    pub(crate) input_tokens: usize,
}

/// The body of `POST /score` and `/v1/score`, beside [`PoolingFields`]. The two sides have several
/// names.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ScoreRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    pub(crate) text_1: Option<Texts>,
    pub(crate) text_2: Option<Texts>,
    pub(crate) queries: Option<Texts>,
    pub(crate) documents: Option<Texts>,
    /// Another name of `documents`.
    pub(crate) items: Option<Texts>,
    pub(crate) data_1: Option<Texts>,
    pub(crate) data_2: Option<Texts>,
    /// Longer documents are cut to so many tokens; 0 cuts none.
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(crate) max_tokens_per_doc: Option<Int>,
    /// The same of queries.
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(crate) max_tokens_per_query: Option<Int>,
    /// What a model is told to look for that answers by words.
    pub(crate) instruction: Option<String>,
    /// Variables of the template of such a model; `instruction` among them counts before the field.
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
    /// What texts are compared by: `embed`, `token_embed` or `token_classify`, as `/pooling` makes
    /// it; what the model is there for, if it isn't said.
    pub(crate) task: Option<String>,
}

/// The answer of scoring.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ScoreAnswer<'a> {
    pub(crate) id: String,
    #[schema(schema_with = constants::list)]
    pub(crate) object: &'static str,
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    pub(crate) data: Vec<PairScore>,
    pub(crate) usage: EmbeddingUsage,
}

/// The score of one pair.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct PairScore {
    pub(crate) index: usize,
    pub(crate) object: &'static str,
    pub(crate) score: f32,
}

/// The body of `POST /classify` and `/v1/classify`, beside [`PoolingFields`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct ClassifyRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    #[schema(value_type = Option<EmbeddingInput>)]
    pub(crate) input: Option<InputsField>,
}

/// The answer of classifying.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ClassifyAnswer<'a> {
    pub(crate) id: String,
    #[schema(schema_with = constants::list)]
    pub(crate) object: &'static str,
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    pub(crate) data: Vec<Classified<'a>>,
    pub(crate) usage: EmbeddingUsage,
}

/// The classes of one text.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Classified<'a> {
    pub(crate) index: usize,
    /// The most likely class.
    pub(crate) label: &'a str,
    pub(crate) probs: Vec<f32>,
    pub(crate) num_classes: usize,
}

/// The body of `POST /pooling`, beside [`PoolingFields`].
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct PoolingRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    #[schema(value_type = Option<EmbeddingInput>)]
    pub(crate) input: Option<InputsField>,
    /// What is wanted: `embed`, `classify`, `token_embed` or `token_classify`; what the model is
    /// there for, if it isn't said.
    pub(crate) task: Option<String>,
    /// The name of the prompt to put before each text; `query` or `document` where texts are compared
    /// token by token.
    pub(crate) prompt_name: Option<String>,
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub(crate) dimensions: Option<Int>,
    #[schema(value_type = Option<EncodingFormat>)]
    pub(crate) encoding_format: Option<String>,
    #[schema(value_type = Option<EmbeddingNumbers>)]
    pub(crate) embed_dtype: Option<String>,
    #[schema(value_type = Option<ByteOrder>)]
    pub(crate) endianness: Option<String>,
}

/// The answer of pooling.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PoolingAnswer<'a> {
    pub(crate) id: String,
    #[schema(schema_with = constants::list)]
    pub(crate) object: &'static str,
    pub(crate) created: u64,
    pub(crate) model: &'a str,
    pub(crate) data: Vec<Pooled>,
    pub(crate) usage: EmbeddingUsage,
}

/// What was made of one text.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Pooled {
    pub(crate) index: usize,
    pub(crate) object: &'static str,
    pub(crate) data: PooledNumbers,
}

/// One vector, those of all tokens, or their bytes in base64.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum PooledNumbers {
    One(Vec<f32>),
    OfTokens(Vec<Vec<f32>>),
    Base64(String),
}
