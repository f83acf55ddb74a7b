//! `/tokenize` and `/detokenize` as JSON. A tokenize body with `messages` also has the fields of
//! [`ChatCompletionRequest`](super::chat::ChatCompletionRequest) that shape a prompt.

use serde::{Deserialize, Serialize};

use super::number::Int;

/// The body of `POST /tokenize`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct TokenizeRequest {
    pub prompt: Option<String>,
    /// llama.cpp's name for `prompt`.
    pub content: Option<String>,
    pub return_token_strs: Option<bool>,
}

/// The answer of `POST /tokenize`.
#[derive(Clone, Debug, Serialize)]
pub struct Tokenized {
    pub count: usize,
    pub max_model_len: usize,
    pub tokens: Vec<u32>,
    pub token_strs: Option<Vec<String>>,
}

/// The body of `POST /detokenize`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct DetokenizeRequest {
    pub model: Option<String>,
    pub tokens: Option<Vec<Int>>,
    pub skip_special_tokens: Option<bool>,
}

/// The answer of `POST /detokenize`.
#[derive(Clone, Debug, Serialize)]
pub struct Detokenized {
    pub prompt: String,
    pub content: String,
}
