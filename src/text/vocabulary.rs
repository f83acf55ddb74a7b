//! Tokenizers from vocabularies: of a GGUF file, which has tokens and merges but no
//! `tokenizer.json`, of a SentencePiece `tokenizer.model` and of a `tekken.json`.
//!
//! Byte-level BPE is built as it is; SentencePiece BPE has no merges, so every way to split a token
//! in two becomes one, ranked by the token's score (as Hugging Face converts such models, see
//! Kudo and Richardson, "SentencePiece", 2018). Reading the file is not done here.

pub mod sentencepiece;
pub mod tekken;

use std::collections::HashMap;

use thiserror::Error;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::utils::Sequence as Normalizers;
use tokenizers::normalizers::{NormalizerWrapper, Prepend, Replace};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, DecoderWrapper, SplitDelimiterBehavior};

use super::pre_tokenizers;
use super::special_tokens::SpecialTokens;
use super::tokenizer::{Tokenizer, TokenizerError};
use super::tokenizer_config::TokenizerConfig;

/// The character that stands for a space in SentencePiece.
const SPACE: &str = "▁";

/// A vocabulary that makes no tokenizer.
#[derive(Debug, Error)]
pub enum VocabularyError {
    /// `tokenizer.ggml.model` names an algorithm that is not supported.
    #[error("vocabularies of kind {0:?} are not supported; gpt2 and llama are")]
    Kind(String),
    /// `tokenizer.ggml.pre` names rules that are not known.
    #[error("the pre-tokenizer {0:?} is not known; without it ids would differ silently")]
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
    /// `model`: `gpt2` (byte-level BPE) or `llama` (SentencePiece BPE).
    pub kind: String,
    /// `pre`: the name of the pre-tokenizer; `None` reads as `default`.
    pub pre: Option<String>,
    /// A pattern that cuts text into words, instead of `pre`.
    pub split: Option<String>,
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
            "gpt2" => self.byte_level()?,
            "llama" => (self.sentence_piece()?, true),
            kind => return Err(VocabularyError::Kind(kind.to_owned())),
        };
        let added = tokenizer.add_tokens(self.added_tokens());
        added.map_err(|error| malformed(error.to_string()))?;
        let mut special_tokens = config.special_tokens.clone();
        special_tokens.fill_from(&self.special_tokens());
        let config = TokenizerConfig {
            add_bos: Some(config.add_bos.or(self.add_bos).unwrap_or(add_bos)),
            add_eos: Some(config.add_eos.or(self.add_eos).unwrap_or(false)),
            special_tokens,
        };
        Ok(Tokenizer::new(tokenizer, &config)?)
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

    /// The tokenizer and whether its prompts begin with bos.
    fn byte_level(&self) -> Result<(tokenizers::Tokenizer, bool), VocabularyError> {
        let name = self.pre.as_deref().unwrap_or("default");
        let unknown = || VocabularyError::PreTokenizer(name.to_owned());
        let (patterns, ignore_merges, add_bos) = if let Some(pattern) = &self.split {
            (vec![pattern.clone()], true, false)
        } else {
            let rules = pre_tokenizers::find(name).ok_or_else(unknown)?;
            let patterns = rules.patterns.iter().map(|pattern| (*pattern).to_owned());
            (patterns.collect(), rules.ignore_merges, rules.add_bos)
        };
        let merges: Result<Merges, VocabularyError> = self.merges.iter().map(|m| pair(m)).collect();
        let model = BPE::builder()
            .vocab_and_merges(self.vocab(), merges?)
            .ignore_merges(ignore_merges)
            .build()
            .map_err(|error| malformed(error.to_string()))?;
        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        for pattern in patterns {
            let pattern = SplitPattern::Regex(pattern);
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
            steps.push(split.map_err(|error| malformed(error.to_string()))?.into());
        }
        steps.push(ByteLevel::new(false, true, false).into());
        let mut tokenizer = tokenizers::Tokenizer::new(model);
        tokenizer.with_pre_tokenizer(Some(PreTokenizers::new(steps)));
        tokenizer.with_decoder(Some(ByteLevel::default()));
        Ok((tokenizer, add_bos))
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
        let replace = |from: &str, to: &str| {
            Replace::new(from, to).map_err(|error| malformed(error.to_string()))
        };
        let prefix = self.add_space_prefix.unwrap_or(true);
        let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
        let mut decoders: Vec<DecoderWrapper> =
            vec![replace(SPACE, " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
        if prefix {
            normalizers.push(Prepend::new(SPACE.to_owned()).into());
            decoders.push(Strip::new(' ', 1, 0).into());
        }
        normalizers.push(replace(" ", SPACE)?.into());
        let mut tokenizer = tokenizers::Tokenizer::new(model);
        let normalized = tokenizer.with_normalizer(Some(Normalizers::new(normalizers)));
        normalized.map_err(|error| malformed(error.to_string()))?;
        tokenizer.with_decoder(Some(Decoders::new(decoders)));
        Ok(tokenizer)
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

/// The halves of a merge; the left one may begin with a space but not be empty.
fn pair(merge: &str) -> Result<(String, String), VocabularyError> {
    let first = merge.chars().next().map_or(0, char::len_utf8);
    let at = merge[first..].find(' ').map(|at| at + first);
    let at = at.ok_or_else(|| malformed(format!("the merge {merge:?} is no pair")))?;
    Ok((merge[..at].to_owned(), merge[at + 1..].to_owned()))
}

#[cfg(test)]
mod tests;
