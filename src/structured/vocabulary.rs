//! What a model can say: its tokens as bytes, in the form the automata walk.
//!
//! Built once per model. The prefix tree over all tokens and the sets of tokens that fit inside any
//! JSON string are built when the first grammar needs them, or ahead of that by [`Vocabulary::warm`]
//! on a thread that has time; the server's start doesn't wait for them. Knows no tokenizer: text
//! becomes tokens through the function that comes with it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use llguidance::ParserFactory;
use toktrie::{INVALID_TOKEN, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use super::error::GrammarError;

/// Longer tokens don't fit the tree; grammars never allow them.
const MAX_TOKEN_BYTES: usize = 1000;
/// Sets of tokens that are allowed or refused as one: those that fit inside a string of JSON, up to
/// a length or of any.
const SLICES: [&str; 3] =
    [r#"[^"\\\x00-\x1F\x7F]{1,10}"#, r#"[^"\\\x00-\x1F\x7F]{1,30}"#, r#"[^"\\\x00-\x1F\x7F]+"#];
/// Texts of the kind that grammars force, to find out whether the tokenizer keeps them as they are.
const PROBES: [&str; 6] = ["{\"name\": \"", "}", "\":", " a", "true", "<tool>\n"];

/// Turns plain text into ids.
pub type Tokenize = Box<dyn Fn(&str) -> Vec<u32> + Send + Sync>;

/// A model's tokens.
pub struct Vocabulary {
    size: usize,
    special: HashMap<String, u32>,
    source: Arc<Source>,
    parsers: OnceLock<Result<ParserFactory, GrammarError>>,
}

struct Source {
    tokens: Vec<Vec<u8>>,
    eos_ids: Vec<u32>,
    tokenize: Tokenize,
}

impl Vocabulary {
    /// The tokens of a model: the bytes that each id adds to a text, in the order of the ids (empty
    /// where an id adds none), the ids that are special with their text, the ids that end a
    /// sequence, and what turns plain text into ids.
    ///
    /// Special tokens are in no text: only a grammar that names one allows it. `tokenize` must not
    /// recognize special tokens nor add any. Rows of logits beyond `tokens` are never allowed.
    /// Cheap: the structures that masks are computed on are built on first use.
    pub fn new(
        mut tokens: Vec<Vec<u8>>,
        special: impl IntoIterator<Item = (u32, String)>,
        eos_ids: Vec<u32>,
        tokenize: Tokenize,
    ) -> Self {
        let special: HashMap<String, u32> =
            special.into_iter().map(|(id, text)| (text, id)).collect();
        for bytes in &mut tokens {
            // 0xFF is in no text; the tree marks special tokens with it.
            if bytes.len() > MAX_TOKEN_BYTES || bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
                bytes.clear();
            }
        }
        let eos_ids: Vec<u32> =
            eos_ids.into_iter().filter(|id| (*id as usize) < tokens.len()).collect();
        let specials = special.iter().map(|(text, id)| (text.as_str(), *id));
        let unnamed = eos_ids.iter().map(|id| ("", *id));
        for (text, id) in
            specials.chain(unnamed.filter(|(_, id)| !special.values().any(|s| s == id)))
        {
            if let Some(bytes) = tokens.get_mut(id as usize) {
                *bytes = marked(text, id);
            }
        }
        let (size, parsers) = (tokens.len(), OnceLock::new());
        Self { size, special, source: Arc::new(Source { tokens, eos_ids, tokenize }), parsers }
    }

    /// The number of ids; masks have a bit for each.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The words of 32 bits in a mask.
    pub fn mask_words(&self) -> usize {
        self.size.div_ceil(32)
    }

    /// The id of the special token that is spelled `text`.
    ///
    /// In Lark it is written `<[id]>` (or, where the text itself has the form `<...>`, as that text
    /// without quotes): `start: <[151657]> "\n" %json {...} "\n" <[151658]>`. A string literal with
    /// the same text means the spelled-out characters and never the token.
    pub fn special(&self, text: &str) -> Option<u32> {
        self.special.get(text).copied()
    }

    /// The special tokens in `text` and what stands between them, in order.
    pub(super) fn split_special<'t>(&self, text: &'t str) -> Vec<Piece<'t>> {
        let mut pieces = Vec::new();
        let mut plain_from = 0;
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let longest = self
                .special
                .iter()
                .filter(|(name, _)| !name.is_empty() && rest.starts_with(name.as_str()));
            if let Some((name, id)) = longest.max_by_key(|(name, _)| name.len()) {
                if plain_from < at {
                    pieces.push(Piece::Plain(&text[plain_from..at]));
                }
                pieces.push(Piece::Special(*id, &rest[..name.len()]));
                at += name.len();
                plain_from = at;
            } else {
                at += rest.chars().next().map_or(1, char::len_utf8);
            }
        }
        if plain_from < text.len() {
            pieces.push(Piece::Plain(&text[plain_from..]));
        }
        pieces
    }

    /// Builds what masks are computed on, once; later calls return at once.
    ///
    /// # Errors
    /// When the tokens can't be made into a tree.
    pub fn warm(&self) -> Result<(), GrammarError> {
        self.parsers().map(|_| ())
    }

    pub(super) fn parsers(&self) -> Result<&ParserFactory, GrammarError> {
        let built = self.parsers.get_or_init(|| {
            let source = Arc::clone(&self.source);
            let build = std::panic::AssertUnwindSafe(move || build(source));
            llguidance::panic_utils::catch_unwind(build)
                .map_err(|error| GrammarError::Internal(format!("vocabulary: {error}")))
        });
        built.as_ref().map_err(Clone::clone)
    }
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, num_special) = (self.size, self.special.len());
        f.debug_struct("Vocabulary")
            .field("size", &size)
            .field("special", &num_special)
            .finish_non_exhaustive()
    }
}

/// A part of a literal.
#[derive(Debug, PartialEq)]
pub(super) enum Piece<'t> {
    /// Text between special tokens.
    Plain(&'t str),
    /// A special token and its spelling.
    Special(u32, &'t str),
}

// The tree finds special tokens by name where they look like a tag, and by id otherwise.
fn marked(text: &str, id: u32) -> Vec<u8> {
    let tag = text.starts_with('<') && text.ends_with('>') && text.len() < 100;
    let name = if tag { text.to_owned() } else { format!("<special-{id}>") };
    let mut bytes = vec![TokTrie::SPECIAL_TOKEN_MARKER];
    bytes.extend_from_slice(name.as_bytes());
    bytes
}

fn build(source: Arc<Source>) -> anyhow::Result<ParserFactory> {
    let size = u32::try_from(source.tokens.len())?;
    let eos = source.eos_ids.first().copied().unwrap_or(INVALID_TOKEN);
    let mut trie = TokTrie::from(&TokRxInfo::new(size, eos), &source.tokens);
    if !source.eos_ids.is_empty() {
        trie = trie.with_eos_tokens(&source.eos_ids);
    }
    let canonical = PROBES.iter().all(|text| {
        let ids = (source.tokenize)(text);
        ids.iter().all(|id| *id < size) && trie.decode(&ids) == text.as_bytes()
    });
    let environment: TokEnv = Arc::new(Environment { trie, source, canonical });
    let slices = SLICES.map(str::to_owned);
    let capabilities = InferenceCapabilities { ff_tokens: canonical, ..Default::default() };
    let mut factory = ParserFactory::new(&environment, capabilities, &slices)?;
    factory.quiet();
    Ok(factory)
}

struct Environment {
    trie: TokTrie,
    source: Arc<Source>,
    // Whether the tokens of a piece of text are its bytes, neither more nor fewer. Some tokenizers
    // put a space before every text; what a grammar forces is then left to the model to spell.
    canonical: bool,
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| {
            let ids = (self.source.tokenize)(text);
            // Never tokens of another text, however odd the tokenizer.
            if self.trie.decode(&ids) == text.as_bytes() {
                ids
            } else {
                self.trie.greedy_tokenize(text.as_bytes())
            }
        })
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.canonical
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_special_tokens_in_literals() {
        let tokens = (0..=255_u8).map(|b| vec![b]).chain([vec![], vec![], vec![]]).collect();
        let special = [(256, "<a>".to_owned()), (257, "<a>b".to_owned()), (258, "[X]".to_owned())];
        let vocabulary = Vocabulary::new(tokens, special, vec![258], Box::new(|_| Vec::new()));
        assert_eq!(vocabulary.special("[X]"), Some(258));
        let pieces = vocabulary.split_special("é<a>c<a>b[X]");
        let expected = [
            Piece::Plain("é"),
            Piece::Special(256, "<a>"),
            Piece::Plain("c"),
            Piece::Special(257, "<a>b"),
            Piece::Special(258, "[X]"),
        ];
        assert_eq!(pieces, expected);
        assert_eq!((vocabulary.size(), vocabulary.mask_words()), (259, 9));
        vocabulary.warm().unwrap();
    }
}
