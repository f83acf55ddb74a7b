//! Texts that begin alike, of which the beginning is tokenized once.
//!
//! Texts are cut between a line feed and a letter of ASCII. Byte pair encoding merges nothing across a cut
//! that no token of the vocabulary goes across, so it remains that words on one side of it aren't cut
//! otherwise by what stands on the other side. Where that isn't known of a tokenizer, its texts are
//! tokenized whole.

use serde::Serialize;
use serde_json::Value;
use tokenizers::ModelWrapper;

use super::{Tokenizer, TokenizerError};
use crate::pre_tokenizers;

impl Tokenizer {
    /// The ids of each text, as [`encode_at_most`](Self::encode_at_most) has them, without special tokens
    /// around it. The beginning that all share is tokenized once, if the tokenizer is of a kind that allows
    /// it: that of one text, up to where lines begin with a letter in all of them.
    ///
    /// # Errors
    /// As [`encode_at_most`](Self::encode_at_most).
    pub fn encode_alike<T: AsRef<str>>(
        &self,
        texts: &[T],
        most: usize,
    ) -> Result<Vec<Vec<u32>>, TokenizerError> {
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        let whole = |text: &&str| self.encode_at_most(text, false, most);
        let [first, rest @ ..] = &texts[..] else { return Ok(Vec::new()) };
        let ids = whole(first)?;
        let beginning = match last_common_line(&texts).filter(|_| self.lines_stand_alone()) {
            Some(cut) => {
                let line = self.encode_line(&first[cut..])?;
                ids.strip_suffix(&line[..]).map(|beginning| (cut, beginning.to_vec()))
            }
            None => None,
        };
        let encode = |text: &&str| match &beginning {
            Some((cut, ids)) => Ok([&ids[..], &self.encode_line(&text[*cut..])?].concat()),
            None => whole(text),
        };
        std::iter::once(Ok(ids)).chain(rest.iter().map(encode)).collect()
    }

    /// The ids of a text that stands behind a line feed.
    fn encode_line(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self.inner.encode_char_offsets(format!("\n{text}"), false);
        let encoding = encoding.map_err(|error| TokenizerError::Encode(error.to_string()))?;
        let tokens = encoding.get_ids().iter().zip(encoding.get_offsets());
        // What tokenizers put in front of a text has the place of its first character.
        Ok(tokens.filter(|(_, (_, end))| *end > 1).map(|(id, _)| *id).collect())
    }

    /// Whether ids in front of a letter behind a line feed are the same whatever follows that letter, and
    /// those from there on whatever stands in front of the line feed. Looks through the whole vocabulary
    /// when first asked.
    fn lines_stand_alone(&self) -> bool {
        let known = || {
            self.pieces.is_none()
                && no_token_crosses(&self.inner)
                && normalizes_characters(&json(self.inner.get_normalizer()))
                && cuts_by_what_is_near(&json(self.inner.get_pre_tokenizer()))
        };
        *self.lines_stand_alone.get_or_init(known)
    }
}

/// The last place up to which all texts are the same, behind a line feed, where each goes on with a letter.
fn last_common_line(texts: &[&str]) -> Option<usize> {
    let (first, rest) = texts.split_first()?;
    let first = first.as_bytes();
    let common =
        |text: &&str| first.iter().zip(text.as_bytes()).take_while(|(a, b)| a == b).count();
    let common = rest.iter().map(common).min()?;
    let letter_at =
        |text: &str, at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_alphabetic);
    let mut lines = (1..=common).rev().filter(|at| first[at - 1] == b'\n');
    lines.find(|at| texts.iter().all(|text| letter_at(text, *at)))
}

/// Whether the model merges pairs alone, and never a line feed with a letter behind it.
fn no_token_crosses(tokenizer: &tokenizers::Tokenizer) -> bool {
    let ModelWrapper::BPE(model) = tokenizer.get_model() else { return false };
    let none = |affix: &Option<String>| affix.as_ref().is_none_or(String::is_empty);
    let plain = model.dropout.is_none()
        && none(&model.continuing_subword_prefix)
        && none(&model.end_of_word_suffix);
    // Letters that are no tokens could become one unknown token together with the line feed.
    let mut letters = ('a'..='z').chain('A'..='Z');
    // A line feed as it is, or as bytes are spelled.
    let crosses = |token: &String| {
        let mut behind = token.split(['\n', 'Ċ']).skip(1);
        behind.any(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()))
    };
    plain
        && letters.all(|letter| tokenizer.token_to_id(letter.encode_utf8(&mut [0; 4])).is_some())
        && !tokenizer.get_vocab(true).keys().any(crosses)
}

/// Whether a normalizer changes no character because of one beyond a line feed, nor line feeds and letters.
fn normalizes_characters(normalizer: &Value) -> bool {
    match kind(normalizer) {
        "" | "NFC" | "NFD" | "NFKC" | "NFKD" | "Prepend" => true,
        "Sequence" => inner(normalizer, "normalizers").all(normalizes_characters),
        "Replace" => is_plain_text(&normalizer["pattern"]),
        _ => false,
    }
}

/// Whether a pre-tokenizer cuts text by no more than what stands around the place, up to a line feed, or to
/// the letter behind one.
fn cuts_by_what_is_near(pre_tokenizer: &Value) -> bool {
    match kind(pre_tokenizer) {
        "" | "ByteLevel" | "Digits" | "Metaspace" | "Punctuation" => true,
        "Sequence" => {
            // Bytes come last: behind them a line feed is spelled as a letter.
            let steps: Vec<&Value> = inner(pre_tokenizer, "pretokenizers").collect();
            let spelled = steps.iter().position(|step| kind(step) == "ByteLevel");
            spelled.is_none_or(|at| at + 1 == steps.len())
                && steps.into_iter().all(cuts_by_what_is_near)
        }
        "Split" => {
            let pattern = &pre_tokenizer["pattern"];
            let known = pattern["Regex"].as_str().is_some_and(pre_tokenizers::is_known);
            known || is_plain_text(pattern)
        }
        _ => false,
    }
}

/// Whether a pattern is a text that doesn't hold what texts are cut at.
fn is_plain_text(pattern: &Value) -> bool {
    let text = pattern["String"].as_str();
    text.is_some_and(|text| !text.contains(|c: char| c == '\n' || c.is_ascii_alphabetic()))
}

/// As `tokenizer.json` has it; null for none.
fn json(step: Option<&impl Serialize>) -> Value {
    serde_json::to_value(step).unwrap_or(Value::Bool(false))
}

/// What kind of step it is, nothing for none.
fn kind(step: &Value) -> &str {
    if step.is_null() { "" } else { step["type"].as_str().unwrap_or("unknown") }
}

/// The steps of a sequence.
fn inner<'a>(step: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    step[name].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use proptest::prelude::*;

    use super::*;
    use crate::decoder::char_of_byte;
    use crate::vocabulary::Vocabulary;

    /// Pairs that words hold, and some that only texts cut otherwise would.
    const MERGES: [&str; 16] = [
        "Ċ Ċ", "ĊĊ Ċ", "Ġ Ġ", "Ġ a", "Ġa b", "a b", "Ġ Ċ", "č Ċ", "1 2", "12 3", "ĉ a", "' s",
        "A b", ". Ċ", "ab Ċ", "b A",
    ];

    fn spelled(pre: &str, merges: &[&str]) -> Tokenizer {
        let mut tokens: Vec<String> = (0..=255).map(|byte| char_of_byte(byte).into()).collect();
        tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
        let vocabulary = Vocabulary {
            kind: "gpt2".to_owned(),
            pre: Some(pre.to_owned()),
            merges: merges.iter().map(|merge| (*merge).to_owned()).collect(),
            tokens,
            ..Vocabulary::default()
        };
        vocabulary.tokenizer().unwrap()
    }

    /// SentencePiece's BPE with a space in front of every text.
    fn pieces() -> Tokenizer {
        let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
        let letters = ('a'..='z').chain('A'..='Z').map(String::from);
        let words = ["▁", "▁a", "ab", "▁ab", "▁▁", ".", "aA"].map(str::to_owned);
        let tokens: Vec<String> =
            std::iter::once("<unk>".to_owned()).chain(bytes).chain(letters).chain(words).collect();
        let mut token_types = vec![1; tokens.len()];
        token_types[0] = 2;
        token_types[1..=256].fill(6);
        #[expect(clippy::cast_precision_loss, reason = "there are few tokens")]
        let scores = (0..tokens.len()).map(|id| id as f32).collect();
        let vocabulary = Vocabulary {
            kind: "llama".to_owned(),
            unk_id: Some(0),
            token_types,
            scores,
            tokens,
            ..Vocabulary::default()
        };
        vocabulary.tokenizer().unwrap()
    }

    /// One for all ways of cutting words, and one of SentencePiece's kind.
    fn all() -> &'static [(&'static str, Tokenizer)] {
        static ALL: OnceLock<Vec<(&str, Tokenizer)>> = OnceLock::new();
        ALL.get_or_init(|| {
            let names = pre_tokenizers::names().into_iter();
            // Those whose vocabularies are not of bytes spelled as characters.
            let names = names.filter(|name| {
                !["gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace"].contains(name)
            });
            let spelled = names.map(|name| (name, spelled(name, &MERGES)));
            spelled.chain([("pieces", pieces())]).collect()
        })
    }

    #[test]
    fn all_ways_of_cutting_words_let_lines_stand_alone() {
        let others: Vec<&str> = all()
            .iter()
            .filter(|(_, one)| !one.lines_stand_alone())
            .map(|(name, _)| *name)
            .collect();
        assert!(others.is_empty(), "{others:?}");
    }

    #[test]
    fn a_vocabulary_with_a_token_across_is_seen() {
        let across = spelled("gpt-2", &[&MERGES[..], &["Ċ a"]].concat());
        assert!(!across.lines_stand_alone());
        let texts = ["x\na", "x\nab"];
        let whole = texts.map(|text| across.encode(text, false).unwrap());
        assert_eq!(across.encode_alike(&texts, 99).unwrap(), whole);
        let lowercased = spelled("gpt-2", &MERGES).lowercased().unwrap();
        assert!(!lowercased.lines_stand_alone(), "a normalizer that nobody looked at");
    }

    #[test]
    fn texts_are_cut_where_all_go_on_with_a_letter() {
        assert_eq!(last_common_line(&["a\nb\nc", "a\nb\nd"]), Some(4));
        assert_eq!(last_common_line(&["a\nb\nc", "a\nb\n1"]), Some(2));
        assert_eq!(last_common_line(&["a\nb\nc", "a\nb\n"]), Some(2));
        assert_eq!(last_common_line(&["a\n b", "a\n c"]), None);
        assert_eq!(last_common_line(&["\na", "b\na"]), None);
        assert_eq!(last_common_line(&["a\nb"]), None);
        assert_eq!(last_common_line(&[]), None);
    }

    #[test]
    fn too_many_tokens_are_refused_at_once() {
        let text = "a b\n".repeat(1 << 16);
        let tokenizer = spelled("gpt-2", &MERGES);
        let refused = tokenizer.encode_alike(&[&text, &text], 99).unwrap_err();
        assert!(matches!(refused, TokenizerError::TooLong(_)), "{refused}");
        assert!(tokenizer.encode_alike::<&str>(&[], 99).unwrap().is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn ids_are_those_of_whole_texts(
            beginning in "[abA1 .'\n\r\té你s]{0,12}\n",
            ends in prop::collection::vec("[abA][abA1 .'\n\r\té你s\u{301}]{0,8}", 2..4),
        ) {
            let texts: Vec<String> = ends.iter().map(|end| format!("{beginning}{end}")).collect();
            for (name, tokenizer) in all() {
                let whole: Vec<Vec<u32>> =
                    texts.iter().map(|text| tokenizer.encode(text, false).unwrap()).collect();
                prop_assert_eq!(tokenizer.encode_alike(&texts, 99).unwrap(), whole, "{}", name);
            }
        }
    }
}
