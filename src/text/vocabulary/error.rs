//! Why a vocabulary makes no tokenizer.

use thiserror::Error;

use crate::pre_tokenizers;
use crate::tokenizer::TokenizerError;

/// A vocabulary that makes no tokenizer.
#[derive(Debug, Error)]
pub enum VocabularyError {
    /// `tokenizer.ggml.model` names an algorithm that is not supported.
    #[error("vocabularies of kind {0:?} are not supported; gpt2, llama, t5 and bert are")]
    Kind(String),
    /// `tokenizer.ggml.pre` names rules that are not known.
    #[error(
        "the pre-tokenizer {0:?} is not known, and without it ids would differ silently; known are \
         {list}", list = pre_tokenizers::names().join(", ")
    )]
    PreTokenizer(String),
    /// The parts do not fit together.
    #[error("the vocabulary is malformed: {0}")]
    Malformed(String),
    /// The tokenizer could not be built.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

/// The parts of a vocabulary do not fit together.
pub(super) fn malformed(message: impl Into<String>) -> VocabularyError {
    VocabularyError::Malformed(message.into())
}
