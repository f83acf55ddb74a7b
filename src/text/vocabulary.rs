//! Tokenizers from vocabularies: of a GGUF file, which has tokens and merges but no
//! `tokenizer.json`, of a SentencePiece `tokenizer.model`, of a `tekken.json` and of a tiktoken file.
//!
//! SentencePiece BPE has no merges, so every way to split a token in two becomes one, ranked by the
//! token's score (as Hugging Face converts such models, see Kudo and Richardson, "SentencePiece",
//! 2018). Reading the file is not done here.

mod byte_level;
pub mod sentencepiece;
pub mod tekken;
pub mod tiktoken;
mod word_pieces;

use std::collections::HashMap;

use thiserror::Error;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::utils::Sequence as Normalizers;
use tokenizers::normalizers::{NormalizerWrapper, Prepend, Replace};
use tokenizers::{AddedToken, DecoderWrapper};

use super::pre_tokenizers;
use super::sentence_pieces::{Charsmap, SentencePieces};
use super::special_tokens::SpecialTokens;
use super::tokenizer::{Tokenizer, TokenizerError};
use super::tokenizer_config::TokenizerConfig;

/// The character that stands for a space in SentencePiece.
const SPACE: &str = "▁";

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
            "gpt2" => byte_level::build(self)?,
            "llama" => (self.sentence_piece()?, true),
            "t5" => (self.unigram()?, false),
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

    fn check(&self) -> Result<(), VocabularyError> {
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
    fn ids(&self) -> HashMap<&str, u32> {
        let mut ids = HashMap::with_capacity(self.tokens.len());
        for (id, text) in (0u32..).zip(&self.tokens) {
            ids.entry(text.as_str()).or_insert(id);
        }
        ids
    }

    fn vocab(&self) -> Vocab {
        self.ids().into_iter().map(|(text, id)| (text.to_owned(), id)).collect()
    }

    /// Tokens that text is searched for before anything else. Control tokens are special.
    fn added_tokens(&self) -> Vec<AddedToken> {
        let typed = self.tokens.iter().zip(&self.token_types).filter(|(text, _)| !text.is_empty());
        typed
            .filter_map(|(text, kind)| match kind {
                2 | 3 => Some(AddedToken::from(text.as_str(), true)),
                4 => Some(AddedToken::from(text.as_str(), false).normalized(false)),
                _ => None,
            })
            .collect()
    }

    fn sentence_piece(&self) -> Result<tokenizers::Tokenizer, VocabularyError> {
        if self.scores.is_empty() {
            return Err(malformed("a vocabulary of kind llama needs scores"));
        }
        let mut builder = BPE::builder()
            .vocab_and_merges(self.vocab(), self.merges_by_score())
            .byte_fallback(true)
            .fuse_unk(true);
        if let Some(text) = self.unk_id.and_then(|id| self.tokens.get(id as usize)) {
            builder = builder.unk_token(text.clone());
        }
        let model = builder.build().map_err(|error| malformed(error.to_string()))?;
        let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
        if self.add_space_prefix.unwrap_or(true) {
            normalizers.push(Prepend::new(SPACE.to_owned()).into());
        }
        normalizers.push(replace(" ", SPACE)?.into());
        let mut tokenizer = tokenizers::Tokenizer::new(model);
        let normalized = tokenizer.with_normalizer(Some(Normalizers::new(normalizers)));
        normalized.map_err(|error| malformed(error.to_string()))?;
        tokenizer.with_decoder(Some(self.piece_decoders()?));
        Ok(tokenizer)
    }

    /// The most likely cut counts; what is no token's text is cut into bytes where there are tokens
    /// for them.
    fn unigram(&self) -> Result<tokenizers::Tokenizer, VocabularyError> {
        /// Less likely than any cut of a text.
        const NEVER: f64 = -1e6;
        if self.scores.is_empty() {
            return Err(malformed("a vocabulary of kind t5 needs scores"));
        }
        let kind = |id: usize| self.token_types.get(id).copied().unwrap_or(1);
        let scored = self.tokens.iter().zip(&self.scores).enumerate();
        let pieces = scored.map(|(id, (text, score))| {
            // Only normal pieces are found in a text; those that are added are found before.
            let score = if kind(id) == 1 { f64::from(*score) } else { NEVER };
            (text.clone(), score)
        });
        let bytes = (0..self.tokens.len()).any(|id| kind(id) == 6);
        let unknown = self.unk_id.map(|id| id as usize);
        let mut model = Unigram::from(pieces.collect(), unknown, bytes)
            .map_err(|error| malformed(error.to_string()))?;
        let normal = (0..self.tokens.len()).filter(|id| kind(*id) == 1);
        let lowest = normal.map(|id| f64::from(self.scores[id])).fold(f64::INFINITY, f64::min);
        model.min_score = if lowest.is_finite() { lowest } else { 0.0 };
        let mut tokenizer = tokenizers::Tokenizer::new(model);
        tokenizer.with_decoder(Some(self.piece_decoders()?));
        Ok(tokenizer)
    }

    /// `▁` is a space, tokens of bytes are bytes, and the leading space goes if it was added.
    fn piece_decoders(&self) -> Result<Decoders, VocabularyError> {
        let mut decoders: Vec<DecoderWrapper> =
            vec![replace(SPACE, " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
        if self.add_space_prefix.unwrap_or(true) {
            decoders.push(Strip::new(' ', 1, 0).into());
        }
        Ok(Decoders::new(decoders))
    }

    /// Every split of a token into two tokens, those of the best token first.
    fn merges_by_score(&self) -> Merges {
        let ids = self.ids();
        let mut ranked: Vec<(f32, &str, &str)> = Vec::new();
        for (text, &score) in self.tokens.iter().zip(&self.scores) {
            for (at, _) in text.char_indices().skip(1) {
                let (left, right) = text.split_at(at);
                if ids.contains_key(left) && ids.contains_key(right) {
                    ranked.push((score, left, right));
                }
            }
        }
        // Ties as Hugging Face breaks them: the longer left half first.
        ranked.sort_by(|a, b| {
            let lengths = |(_, left, right): &(f32, &str, &str)| {
                (left.chars().count(), right.chars().count())
            };
            b.0.total_cmp(&a.0).then_with(|| lengths(b).cmp(&lengths(a)))
        });
        ranked.into_iter().map(|(_, left, right)| (left.to_owned(), right.to_owned())).collect()
    }
}

fn malformed(message: impl Into<String>) -> VocabularyError {
    VocabularyError::Malformed(message.into())
}

fn replace(from: &str, to: &str) -> Result<Replace, VocabularyError> {
    Replace::new(from, to).map_err(|error| malformed(error.to_string()))
}

/// The halves of a merge; the left one may begin with a space but not be empty.
fn pair(merge: &str) -> Result<(String, String), VocabularyError> {
    let first = merge.chars().next().map_or(0, char::len_utf8);
    let at = merge[first..].find(' ').map(|at| at + first);
    let at = at.ok_or_else(|| malformed(format!("the merge {merge:?} is no pair")))?;
    Ok((merge[..at].to_owned(), merge[at + 1..].to_owned()))
}

#[cfg(test)]
mod odd_texts;
#[cfg(test)]
mod tests;
