//! Tokenizers from vocabularies: of a GGUF file, which has tokens and merges but no
//! `tokenizer.json`, of a SentencePiece `tokenizer.model`, of a `tekken.json` and of a tiktoken file.
//!
//! Reading the file is not done here.

mod byte_level;
mod contents;
mod error;
pub mod from_json;
mod pieces;
pub mod sentencepiece;
pub mod tekken;
pub mod tiktoken;
mod word_pieces;

use super::sentence_pieces::{Charsmap, SentencePieces};
use super::tokenizer::Tokenizer;
use super::tokenizer_config::TokenizerConfig;
pub use contents::Vocabulary;
pub use error::VocabularyError;
use error::malformed;

impl Vocabulary {
    /// Builds the tokenizer.
    ///
    /// # Errors
    /// When the kind or the pre-tokenizer is not supported, or the parts do not fit together.
    pub fn tokenizer(&self) -> Result<Tokenizer, VocabularyError> {
        self.tokenizer_with(&TokenizerConfig::default())
    }

    /// As [`tokenizer`](Self::tokenizer); what `config` says counts for more.
    ///
    /// # Errors
    /// As [`tokenizer`](Self::tokenizer).
    pub fn tokenizer_with(&self, config: &TokenizerConfig) -> Result<Tokenizer, VocabularyError> {
        self.check()?;
        let (mut tokenizer, add_bos) = match self.kind.as_str() {
            "gpt2" | "gemma4" => byte_level::build(self)?,
            "llama" => (pieces::bpe(self)?, true),
            "t5" => (pieces::unigram(self)?, false),
            "bert" => (word_pieces::build(self)?, true),
            kind => return Err(VocabularyError::Kind(kind.to_owned())),
        };
        let added = tokenizer.add_tokens(self.added_tokens());
        added.map_err(|error| malformed(error.to_string()))?;
        let mut special_tokens = config.special_tokens.clone();
        special_tokens.fill_from(&self.special_tokens());
        let config = TokenizerConfig {
            add_bos: Some(config.add_bos.or(self.add_bos).unwrap_or(add_bos)),
            add_eos: Some(config.add_eos.or(self.add_eos).unwrap_or(self.kind == "bert")),
            special_tokens,
        };
        let tokenizer = Tokenizer::new(tokenizer, &config)?;
        Ok(match self.sentence_pieces()? {
            Some(pieces) => tokenizer.with_sentence_pieces(pieces),
            None => tokenizer,
        })
    }

    /// What SentencePiece does to a text, where the normalizers of `tokenizer.json` can't do it.
    fn sentence_pieces(&self) -> Result<Option<SentencePieces>, VocabularyError> {
        let charsmap = match self.precompiled_charsmap.as_slice() {
            [] => None,
            bytes => Some(Charsmap::read(bytes).map_err(malformed)?),
        };
        let collapse_spaces = self.remove_extra_whitespaces.unwrap_or(false);
        let needed = self.sentence_pieces || charsmap.is_some() || collapse_spaces;
        Ok((self.kind == "t5" || self.kind == "llama" && needed).then(|| SentencePieces {
            charsmap,
            space_prefix: self.add_space_prefix.unwrap_or(true),
            collapse_spaces,
        }))
    }
}

#[cfg(test)]
mod odd_texts;
#[cfg(test)]
mod tests;
