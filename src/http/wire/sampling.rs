//! The fields that shape what is generated: those that every protocol takes, and those that have
//! OpenAI's names.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::logit_bias::LogitBiasField;
use super::number::Int;
use super::prediction::PredictionField;
use super::schema::chat::{
    BadWords, EarlyStopping, LogitBias, ResponseFormat, SequenceBreakers, ServiceTierName, Stop,
    StructuredOutputs, TruncationSide,
};
use super::schema::served::{TokenId, TruncatedLength};
use super::stop::StopField;

/// The fields that every generating route takes, whatever its protocol, beside
/// [`ScalarFields`](super::scalars::ScalarFields).
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct CommonFields {
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub(crate) top_k: Option<Int>,
    #[schema(minimum = 0.0, maximum = 100.0)]
    pub(crate) dry_multiplier: Option<f64>,
    #[schema(minimum = 1.0, maximum = 100.0)]
    pub(crate) dry_base: Option<f64>,
    #[schema(value_type = Option<i64>, minimum = 1)]
    pub(crate) dry_allowed_length: Option<Int>,
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub(crate) dry_penalty_last_n: Option<Int>,
    #[schema(value_type = Option<SequenceBreakers>)]
    pub(crate) dry_sequence_breakers: Option<Vec<String>>,
    /// Only so many of the last tokens count as repeated; -1 for all.
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub(crate) repeat_last_n: Option<Int>,
    #[schema(value_type = Option<LogitBias>)]
    pub(crate) logit_bias: Option<LogitBiasField>,
    /// -1 is drawn anew, as none is.
    #[schema(value_type = Option<i64>)]
    pub(crate) seed: Option<Int>,
    #[schema(value_type = Option<Vec<TokenId>>)]
    pub(crate) stop_token_ids: Option<Vec<Int>>,
    #[schema(value_type = Option<Vec<TokenId>>, min_items = 1)]
    pub(crate) allowed_token_ids: Option<Vec<Int>>,
    #[schema(value_type = Option<BadWords>)]
    pub(crate) bad_words: Option<Vec<String>>,
    /// Where logprobs are asked for: those of these tokens, in place of the most likely ones.
    #[schema(value_type = Option<Vec<TokenId>>, max_items = 128)]
    pub(crate) logprob_token_ids: Option<Vec<Int>>,
    pub(crate) include_stop_str_in_output: Option<bool>,
    pub(crate) skip_special_tokens: Option<bool>,
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(crate) min_tokens: Option<Int>,
    pub(crate) ignore_eos: Option<bool>,
    #[schema(value_type = Option<i32>)]
    pub(crate) priority: Option<Int>,
    /// Stands for a `priority`.
    #[schema(value_type = Option<ServiceTierName>)]
    pub(crate) service_tier: Option<String>,
    #[schema(min_length = 1, max_length = 128)]
    pub(crate) cache_salt: Option<String>,
    /// Whether prefixes that were computed before are used again.
    pub(crate) cache_prompt: Option<bool>,
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 86_400_000)]
    pub(crate) deadline_ms: Option<Int>,
}

/// The fields that chat completions, completions and responses share.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct SamplingFields {
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 128)]
    pub(crate) n: Option<Int>,
    #[schema(value_type = Option<Stop>)]
    pub(crate) stop: Option<StopField>,
    /// 0 computes the prompt and answers nothing.
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(crate) max_tokens: Option<Int>,
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(crate) max_completion_tokens: Option<Int>,
    pub(crate) return_token_ids: Option<bool>,
    pub(crate) return_tokens_as_token_ids: Option<bool>,
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 20)]
    pub(crate) prompt_logprobs: Option<Int>,
    #[schema(value_type = Option<ResponseFormat>)]
    pub(crate) response_format: Option<Value>,
    #[schema(value_type = Option<StructuredOutputs>)]
    pub(crate) structured_outputs: Option<Value>,
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub(crate) thinking_token_budget: Option<Int>,
    /// Keeps so many tokens of the prompt; -1 for as many as fit with `max_tokens` behind them.
    #[schema(value_type = Option<TruncatedLength>)]
    pub(crate) truncate_prompt_tokens: Option<Int>,
    #[schema(value_type = Option<TruncationSide>)]
    pub(crate) truncation_side: Option<String>,
    pub(crate) prompt_cache_options: Option<PromptCacheOptions>,
    pub(crate) prediction: Option<PredictionField>,
    /// Most tokens that are drafted at a time, if fewer than the server would; 0 for none. The answer
    /// doesn't depend on it.
    #[serde(rename = "speculative.n_max")]
    #[schema(value_type = Option<i64>, minimum = 0)]
    pub(crate) max_drafts: Option<Int>,
    /// The request's own name, which the answer's id ends with; the header `x-request-id` comes
    /// first where requests are only rendered.
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]+$")]
    pub(crate) request_id: Option<String>,
    pub(crate) use_beam_search: Option<bool>,
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 128)]
    pub(crate) beam_width: Option<Int>,
    #[schema(minimum = -10.0, maximum = 10.0)]
    pub(crate) length_penalty: Option<f64>,
    #[schema(value_type = Option<EarlyStopping>)]
    pub(crate) early_stopping: Option<EarlyStoppingField>,
}

/// What a request wants of the prefix cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
pub(crate) struct PromptCacheOptions {
    /// Computes the prompt and answers nothing.
    pub(crate) prewarm: Option<bool>,
    /// An answer whose prompt this one is compared with.
    pub(crate) comparison_response_id: Option<String>,
}

/// When a search ends: true, false or "never".
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum EarlyStoppingField {
    Flag(bool),
    Word(String),
}
