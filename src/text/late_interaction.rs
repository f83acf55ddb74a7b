//! How a model of late interaction reads queries and documents, which it compares token by token.
//!
//! Khattab and Zaharia, "ColBERT", 2020, section 3.2: both begin with a token of their own; a query is
//! filled up with mask tokens to a fixed length, which have vectors too (query expansion); of a document
//! the vectors of punctuation are left out. Reference: `ColBERT` of PyLate and `MultiVectorEncoder` of
//! sentence-transformers.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::tokenizer::Tokenizer;

/// What a text is in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What is looked for.
    Query,
    /// What may answer it.
    Document,
}

/// What a model's files say, in their words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How queries are read.
    pub query: SideSettings,
    /// How documents are read.
    pub document: SideSettings,
    /// How queries are filled up, if they are.
    pub expansion: Option<ExpansionSettings>,
    /// Tokens that have no vector, as the vocabulary spells them; those that it lacks count for nothing.
    pub skipped: Vec<String>,
    /// On which sides they have none.
    pub skips: Vec<Side>,
}

/// How texts of one side are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideSettings {
    /// The token that is put behind the first one, or a text that is put before the text if it is none.
    pub prefix: String,
    /// A text that is put before the text.
    pub prompt: String,
    /// Most tokens, with the prefix and special ones.
    pub longest: Option<usize>,
}

/// How queries are filled up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpansionSettings {
    /// To how many tokens.
    pub length: usize,
    /// By which token; `None` is the tokenizer's mask.
    pub token: Option<String>,
    /// Whether other tokens see those.
    pub seen: bool,
}

/// How queries and documents are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateInteraction {
    query: Reading,
    document: Reading,
    expansion: Option<Expansion>,
    skipped: BTreeSet<u32>,
    skips: Vec<Side>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    prefix: Option<u32>,
    prompt: String,
    longest: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Expansion {
    length: usize,
    token: u32,
    seen: bool,
}

/// A query can't be filled up.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ExpansionError {
    /// The vocabulary lacks the token.
    #[error("queries are filled up with {0:?}, which the vocabulary lacks")]
    NoSuchToken(String),
    /// Nothing names a token.
    #[error("queries are filled up with mask tokens, and the tokenizer has none")]
    NoMask,
}

/// A text as the model reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SidedIds {
    /// All tokens.
    pub ids: Vec<u32>,
    /// How many of the last ones no token sees.
    pub unseen: usize,
}

impl LateInteraction {
    /// What `settings` mean with this vocabulary.
    ///
    /// # Errors
    /// It lacks the token that queries are filled up with.
    pub fn new(settings: Settings, tokenizer: &Tokenizer) -> Result<Self, ExpansionError> {
        let Settings { query, document, expansion, skipped, skips } = settings;
        let expansion = expansion.map(|own| Expansion::new(own, tokenizer)).transpose()?;
        let unknown = tokenizer.special_tokens().get("unk_token");
        let words = skipped.iter().filter(|word| unknown != Some(word.as_str()));
        Ok(Self {
            query: Reading::new(query, tokenizer),
            document: Reading::new(document, tokenizer),
            expansion,
            skipped: words.filter_map(|word| tokenizer.token_id(word)).collect(),
            skips,
        })
    }

    fn reading(&self, side: Side) -> &Reading {
        match side {
            Side::Query => &self.query,
            Side::Document => &self.document,
        }
    }

    /// What is put before a text of this side.
    pub fn prompt(&self, side: Side) -> &str {
        &self.reading(side).prompt
    }

    /// Most tokens of a text of this side, of at most `context` that the model reads, without those that
    /// [`finish`](Self::finish) puts in.
    pub fn room(&self, side: Side, context: usize) -> usize {
        let Reading { prefix, longest, .. } = self.reading(side);
        let most = longest.unwrap_or(context).min(context);
        most.saturating_sub(usize::from(prefix.is_some()))
    }

    /// The tokens of a text with its prefix, a query filled up. `context` is what the model reads.
    pub fn finish(&self, side: Side, mut ids: Vec<u32>, context: usize) -> SidedIds {
        if let Some(prefix) = self.reading(side).prefix {
            // Behind the token that begins texts.
            ids.insert(ids.len().min(1), prefix);
        }
        let Some(expansion) = self.expansion.filter(|_| side == Side::Query) else {
            return SidedIds { ids, unseen: 0 };
        };
        let added = expansion.length.min(context).saturating_sub(ids.len());
        ids.extend(std::iter::repeat_n(expansion.token, added));
        SidedIds { ids, unseen: if expansion.seen { 0 } else { added } }
    }

    /// The vectors that count of those of all tokens, one after the other.
    pub fn counted(&self, side: Side, ids: &[u32], vectors: Vec<f32>) -> Vec<f32> {
        if !self.skips.contains(&side) || self.skipped.is_empty() {
            return vectors;
        }
        let width = (vectors.len() / ids.len().max(1)).max(1);
        let all = vectors.chunks_exact(width).zip(ids);
        let kept = all.filter(|(_, id)| !self.skipped.contains(id));
        kept.flat_map(|(vector, _)| vector).copied().collect()
    }
}

impl Reading {
    fn new(settings: SideSettings, tokenizer: &Tokenizer) -> Self {
        let SideSettings { prefix, prompt, longest } = settings;
        // A vocabulary may have the token without the space that ends the prefix.
        let named = [prefix.as_str(), prefix.trim_end()].into_iter();
        let token = named.filter(|name| !name.is_empty()).find_map(|name| tokenizer.token_id(name));
        let prompt = if token.is_none() { prefix + &prompt } else { prompt };
        Self { prefix: token, prompt, longest }
    }
}

impl Expansion {
    fn new(settings: ExpansionSettings, tokenizer: &Tokenizer) -> Result<Self, ExpansionError> {
        let ExpansionSettings { length, token, seen } = settings;
        let named = token.as_deref().or_else(|| tokenizer.special_tokens().get("mask_token"));
        let named = named.ok_or(ExpansionError::NoMask)?;
        let token = tokenizer.token_id(named);
        let token = token.ok_or_else(|| ExpansionError::NoSuchToken(named.to_owned()))?;
        Ok(Self { length, token, seen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer_config::TokenizerConfig;

    const JSON: &str = r#"{
        "version": "1.0",
        "added_tokens": [
            {"id": 0, "content": "[CLS]", "special": true, "single_word": false, "lstrip": false,
             "rstrip": false, "normalized": false},
            {"id": 1, "content": "[MASK]", "special": true, "single_word": false, "lstrip": false,
             "rstrip": false, "normalized": false},
            {"id": 4, "content": "[Q] ", "special": false, "single_word": false, "lstrip": false,
             "rstrip": false, "normalized": true}
        ],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "unk_token": "a",
                  "vocab": {"[CLS]": 0, "[MASK]": 1, "a": 2, ",": 3}}
    }"#;

    fn tokenizer() -> Tokenizer {
        let mut config = TokenizerConfig::default();
        config.special_tokens.set("mask_token", "[MASK]");
        Tokenizer::from_json(JSON.as_bytes(), &config).unwrap()
    }

    fn settings() -> Settings {
        let side = |prefix: &str, longest| SideSettings {
            prefix: prefix.to_owned(),
            prompt: "p: ".to_owned(),
            longest: Some(longest),
        };
        Settings {
            query: side("[Q] ", 6),
            document: side("[D] ", 9),
            expansion: Some(ExpansionSettings { length: 6, token: None, seen: false }),
            skipped: vec![",".to_owned(), "!".to_owned()],
            skips: vec![Side::Document],
        }
    }

    #[test]
    fn queries_are_filled_up_and_documents_are_not() {
        let own = LateInteraction::new(settings(), &tokenizer()).unwrap();
        // The vocabulary has no token for documents: it is a text.
        assert_eq!((own.prompt(Side::Query), own.prompt(Side::Document)), ("p: ", "[D] p: "));
        assert_eq!((own.room(Side::Query, 100), own.room(Side::Document, 100)), (5, 9));
        assert_eq!((own.room(Side::Query, 4), own.room(Side::Document, 4)), (3, 4));
        let query = own.finish(Side::Query, vec![0, 2, 3], 100);
        assert_eq!(query, SidedIds { ids: vec![0, 4, 2, 3, 1, 1], unseen: 2 });
        let document = own.finish(Side::Document, vec![0, 2, 3], 100);
        assert_eq!(document, SidedIds { ids: vec![0, 2, 3], unseen: 0 });
        assert_eq!(own.finish(Side::Query, vec![0], 3).ids, [0, 4, 1]);
    }

    #[test]
    fn punctuation_of_documents_has_no_vector() {
        let own = LateInteraction::new(settings(), &tokenizer()).unwrap();
        let vectors = || vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(own.counted(Side::Document, &[0, 3, 2], vectors()), [0.0, 1.0, 4.0, 5.0]);
        assert_eq!(own.counted(Side::Query, &[0, 3, 2], vectors()), vectors());
    }

    #[test]
    fn a_token_that_is_not_there_fills_nothing_up() {
        let of = |token: Option<&str>, tokenizer: &Tokenizer| {
            let mut settings = settings();
            settings.expansion.as_mut().unwrap().token = token.map(str::to_owned);
            LateInteraction::new(settings, tokenizer).err()
        };
        let missing = ExpansionError::NoSuchToken("[NO]".to_owned());
        assert_eq!(of(Some("[NO]"), &tokenizer()), Some(missing));
        let plain = Tokenizer::from_json(JSON.as_bytes(), &TokenizerConfig::default()).unwrap();
        assert_eq!(of(None, &plain), Some(ExpansionError::NoMask));
        assert_eq!(of(Some("a"), &plain), None);
    }
}
