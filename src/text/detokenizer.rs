//! Ids to text, one token at a time.
//!
//! The pieces joined are exactly the text of all ids decoded at once, no piece ends within a
//! character, and the whole costs linear time: text is handed out as soon as no later token can
//! change it.

use std::sync::Arc;

use super::decoder::DecoderChain;
use super::tokenizer::Tokenizer;

/// The text of one growing list of ids. Owned by one request.
#[derive(Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    chain: DecoderChain,
    skip_special_tokens: bool,
    /// Special tokens that are shown though others are skipped.
    shown: Vec<u32>,
}

impl Detokenizer {
    /// A detokenizer that has seen no id yet.
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special_tokens: bool) -> Self {
        let chain = tokenizer.chain();
        Self { tokenizer, chain, skip_special_tokens, shown: Vec::new() }
    }

    /// The same, with the special tokens of `ids` in the text even where others are skipped.
    #[must_use]
    pub fn showing(self, ids: Vec<u32>) -> Self {
        Self { shown: ids, ..self }
    }

    /// Appends a token and gives the text that became certain, which may be empty: a token may be
    /// special, or only part of a character.
    pub fn push(&mut self, id: u32) -> String {
        let mut text = String::new();
        let skip = self.skip_special_tokens && !self.shown.contains(&id);
        self.tokenizer.push_token(&mut self.chain, id, skip, &mut text);
        text
    }

    /// Appends several tokens; [`push`](Self::push) for each.
    pub fn push_all(&mut self, ids: &[u32]) -> String {
        ids.iter().map(|id| self.push(*id)).collect()
    }

    /// Ends the text and gives what was held back: bytes that never became a character read as
    /// U+FFFD. Nothing may be pushed afterwards.
    pub fn finish(&mut self) -> String {
        let mut text = String::new();
        self.chain.finish(&mut text);
        text
    }
}

#[cfg(test)]
mod tests;
