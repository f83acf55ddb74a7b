//! The names that llama.cpp has for fields which this API calls something else.

use serde::Deserialize;
use utoipa::ToSchema;

use super::number::Int;

/// What llama.cpp calls fields of chat completions and completions.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Synonyms {
    /// llama.cpp's name of `max_tokens`; -1 is no bound.
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub(crate) n_predict: Option<Int>,
    /// llama.cpp's name of `n`.
    #[schema(value_type = Option<i64>, minimum = 1, maximum = 128)]
    pub(crate) n_cmpl: Option<Int>,
    /// llama.cpp's name of the number of alternatives that logprobs list; 0 asks for none.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 20)]
    pub(crate) n_probs: Option<Int>,
    /// llama.cpp's name of `repetition_penalty`.
    #[schema(exclusive_minimum = 0.0)]
    pub(crate) repeat_penalty: Option<f64>,
    /// llama.cpp's name of `thinking_token_budget`.
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub(crate) reasoning_budget_tokens: Option<Int>,
    /// llama.cpp's other name of `thinking_token_budget`.
    #[schema(value_type = Option<i64>, minimum = -1)]
    pub(crate) thinking_budget_tokens: Option<Int>,
}
