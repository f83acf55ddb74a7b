//! `/tokenize` and `/detokenize` as JSON. A tokenize body with `messages` also has the fields of
//! [`ChatCompletionRequest`](super::chat::ChatCompletionRequest) that shape a prompt.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::number::Int;
use super::schema::chat::TokenPiece;
use super::schema::served::{RequestedModel, TokenId};

/// The body of `POST /tokenize`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct TokenizeRequest {
    pub(crate) model: Option<String>,
    pub(crate) add_special_tokens: Option<bool>,
    pub(crate) prompt: Option<String>,
    /// llama.cpp's name for `prompt`.
    pub(crate) content: Option<String>,
    pub(crate) return_token_strs: Option<bool>,
    /// llama.cpp's: tokens as objects of id and text.
    pub(crate) with_pieces: Option<bool>,
    /// llama.cpp's name for `add_special_tokens`, where it is false by default.
    pub(crate) add_special: Option<bool>,
}

/// A token of a text.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Token {
    /// Its id.
    Id(u32),
    /// Its id and its text, or its bytes where they are no text.
    Piece {
        id: u32,
        #[schema(value_type = TokenPiece)]
        piece: Value,
    },
}

/// The answer of `POST /tokenize`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Tokenized {
    pub(crate) count: usize,
    pub(crate) max_model_len: usize,
    pub(crate) tokens: Vec<Token>,
    #[schema(required)]
    pub(crate) token_strs: Option<Vec<String>>,
}

/// The body of `POST /detokenize`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub(crate) struct DetokenizeRequest {
    #[schema(value_type = Option<RequestedModel>)]
    pub(crate) model: Option<String>,
    #[schema(value_type = Vec<TokenId>)]
    pub(crate) tokens: Option<Vec<Int>>,
    pub(crate) skip_special_tokens: Option<bool>,
}

/// The answer of `POST /detokenize`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Detokenized {
    pub(crate) prompt: String,
    pub(crate) content: String,
}
