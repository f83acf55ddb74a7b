//! What a vocabulary says, as plain data. Refuses to know how tokenizers are made of it.

use std::collections::HashMap;

use tokenizers::AddedToken;
use tokenizers::models::bpe::Vocab;
use tokenizers::normalizers::Replace;

use super::error::{VocabularyError, malformed};
use crate::special_tokens::SpecialTokens;

/// The character that stands for a space in SentencePiece.
pub(super) const SPACE: &str = "▁";

/// What `tokenizer.ggml.*` in a GGUF file says, as plain data.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vocabulary {
    /// `model`: `gpt2` (byte-level BPE), `llama` (SentencePiece BPE), `t5` (SentencePiece unigram)
    /// or `bert` (word pieces).
    pub kind: String,
    /// `pre`: the name of the pre-tokenizer; `None` reads as `default`.
    pub pre: Option<String>,
    /// A pattern that cuts text into words, instead of `pre`.
    pub split: Option<String>,
    /// A word that is a token is taken whole, whatever the rules behind `pre` say.
    pub whole_words: bool,
    /// Token texts; the index is the id.
    pub tokens: Vec<String>,
    /// Scores by id; needed for `llama`, else empty.
    pub scores: Vec<f32>,
    /// Kinds by id (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte); empty reads
    /// as all normal.
    pub token_types: Vec<i32>,
    /// Merges, `left right`, best first; needed for `gpt2`.
    pub merges: Vec<String>,
    /// Id of the token that begins a sequence.
    pub bos_id: Option<u32>,
    /// Id of the token that ends a sequence.
    pub eos_id: Option<u32>,
    /// Id of the token for what has no token.
    pub unk_id: Option<u32>,
    /// Id of the token that separates sentences.
    pub sep_id: Option<u32>,
    /// Id of the token that pads.
    pub pad_id: Option<u32>,
    /// Whether prompts begin with bos; `None` leaves it to the kind.
    pub add_bos: Option<bool>,
    /// Whether prompts end with eos; `None` is no.
    pub add_eos: Option<bool>,
    /// Whether SentencePiece text gets a leading space; `None` is yes.
    pub add_space_prefix: Option<bool>,
    /// Whether SentencePiece text loses repeated spaces; `None` is no.
    pub remove_extra_whitespaces: Option<bool>,
    /// Whether text is changed as SentencePiece does it in all cases, not as conversions do.
    pub sentence_pieces: bool,
    /// SentencePiece's table of respelled characters; empty if there is none.
    pub precompiled_charsmap: Vec<u8>,
    /// Whether word pieces are of small letters only; `None` is yes.
    pub lowercase: Option<bool>,
}

impl Vocabulary {
    /// Gives an id to a token that was added to the vocabulary, or stands in the place of one that
    /// was there.
    ///
    /// # Errors
    /// When the id leaves a gap.
    pub fn add(&mut self, id: usize, text: &str, special: bool) -> Result<(), VocabularyError> {
        let kind = if special { 3 } else { 4 };
        let count = self.tokens.len();
        self.token_types.resize(count, 1);
        if id > count {
            return Err(malformed(format!(
                "the token {text:?} has the id {id} behind {count} tokens"
            )));
        }
        if id == count {
            self.tokens.push(String::new());
            self.token_types.push(kind);
            if !self.scores.is_empty() {
                self.scores.push(0.0);
            }
        }
        text.clone_into(&mut self.tokens[id]);
        self.token_types[id] = kind;
        Ok(())
    }

    /// The texts of the named special tokens.
    pub fn special_tokens(&self) -> SpecialTokens {
        let mut tokens = SpecialTokens::default();
        let named = [
            ("bos_token", self.bos_id),
            ("eos_token", self.eos_id),
            ("unk_token", self.unk_id),
            ("sep_token", self.sep_id),
            ("pad_token", self.pad_id),
        ];
        for (name, id) in named {
            if let Some(text) = id.and_then(|id| self.tokens.get(id as usize)) {
                tokens.set(name, text.as_str());
            }
        }
        tokens
    }

    /// Refuses ids and lists that do not fit the tokens.
    pub(super) fn check(&self) -> Result<(), VocabularyError> {
        let count = self.tokens.len();
        if count == 0 {
            return Err(malformed("there are no tokens"));
        }
        if u32::try_from(count).is_err() {
            return Err(malformed(format!("{count} tokens are more than ids")));
        }
        for (name, length) in [("scores", self.scores.len()), ("types", self.token_types.len())] {
            if length != 0 && length != count {
                return Err(malformed(format!("{length} {name} for {count} tokens")));
            }
        }
        let ids = [self.bos_id, self.eos_id, self.unk_id, self.sep_id, self.pad_id];
        match ids.into_iter().flatten().find(|&id| id as usize >= count) {
            Some(id) => Err(malformed(format!("id {id} of a special token, but {count} tokens"))),
            None => Ok(()),
        }
    }

    /// Ids by text; of several tokens with the same text the first counts.
    pub(super) fn ids(&self) -> HashMap<&str, u32> {
        let mut ids = HashMap::with_capacity(self.tokens.len());
        for (id, text) in (0u32..).zip(&self.tokens) {
            ids.entry(text.as_str()).or_insert(id);
        }
        ids
    }

    /// Ids by text, as the tokenizers take them.
    pub(super) fn vocab(&self) -> Vocab {
        self.ids().into_iter().map(|(text, id)| (text.to_owned(), id)).collect()
    }

    /// Tokens that text is searched for before anything else. Control tokens are special.
    pub(super) fn added_tokens(&self) -> Vec<AddedToken> {
        let typed = self.tokens.iter().zip(&self.token_types).filter(|(text, _)| !text.is_empty());
        typed
            .filter_map(|(text, kind)| match kind {
                2 | 3 => Some(AddedToken::from(text.as_str(), true)),
                4 => Some(AddedToken::from(text.as_str(), false).normalized(false)),
                _ => None,
            })
            .collect()
    }
}

/// Replaces one text by another.
pub(super) fn replace(from: &str, to: &str) -> Result<Replace, VocabularyError> {
    Replace::new(from, to).map_err(|error| malformed(error.to_string()))
}
