//! Words of tokens: where they begin, and which punctuation belongs to them.
//!
//! As `_combine_tokens_into_words` of transformers, which has it from the reference code.

use crate::text::tokenizer::Tokenizer;

/// What belongs to the word behind it.
const BEFORE: &str = "\"'“¡¿([{-";
/// What belongs to the word before it.
const AFTER: &str = "\"'.。,，!！?？:：”)]}、";
/// What stands alone, whatever is before it.
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
/// What stands for a part of a character.
const PART: char = '\u{fffd}';

/// A word, with the space before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// As it is written.
    pub(super) text: String,
    /// Which tokens it is made of.
    pub(super) tokens: Vec<usize>,
}

impl Word {
    fn join(&mut self, other: Self) {
        self.text.push_str(&other.text);
        self.tokens.extend(other.tokens);
    }
}

/// The words of `tokens`, which are all text, in a language with or without spaces between them.
pub(super) fn words(tokenizer: &Tokenizer, tokens: &[u32], has_spaces: bool) -> Vec<Word> {
    let characters = whole_characters(tokenizer, tokens);
    let words = if has_spaces { at_spaces(characters) } else { characters };
    with_punctuation(words)
}

/// The shortest runs of tokens that have no part of a character.
fn whole_characters(tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<Word> {
    let full: Vec<char> = tokenizer.decode(tokens, false).chars().collect();
    let mut words = Vec::new();
    let (mut from, mut offset) = (0, 0);
    for at in 0..tokens.len() {
        let text = tokenizer.decode(&tokens[from..=at], false);
        let broken = text.chars().position(|character| character == PART);
        // A part of a character that is one in the whole text as well never becomes whole.
        let is_whole = broken.is_none_or(|broken| {
            full.get(offset + broken).is_none_or(|character| *character == PART)
        });
        if is_whole {
            offset += text.chars().count();
            words.push(Word { text, tokens: (from..=at).collect() });
            from = at + 1;
        }
    }
    words
}

/// Joins what neither begins with a space nor is punctuation to what stands before it.
fn at_spaces(parts: Vec<Word>) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for part in parts {
        let is_punctuation = is_part_of(part.text.trim(), PUNCTUATION);
        match words.last_mut() {
            Some(last) if !part.text.starts_with(' ') && !is_punctuation => last.join(part),
            _ => words.push(part),
        }
    }
    words
}

/// Joins punctuation to the words that it belongs to.
fn with_punctuation(words: Vec<Word>) -> Vec<Word> {
    // From the end: what opens belongs to the word behind it.
    let mut opened: Vec<Word> = Vec::with_capacity(words.len());
    for mut word in words.into_iter().rev() {
        let opens = word.text.starts_with(' ') && is_part_of(word.text.trim(), BEFORE);
        match opened.last_mut() {
            Some(behind) if opens => {
                word.join(std::mem::take(behind));
                *behind = word;
            }
            _ => opened.push(word),
        }
    }
    let mut closed: Vec<Word> = Vec::with_capacity(opened.len());
    for word in opened.into_iter().rev() {
        match closed.last_mut() {
            Some(before) if !before.text.ends_with(' ') && is_part_of(&word.text, AFTER) => {
                before.join(word);
            }
            _ => closed.push(word),
        }
    }
    closed.retain(|word| !word.text.is_empty());
    closed
}

/// Whether `all` has the text, as the empty one is had by everything.
fn is_part_of(text: &str, all: &str) -> bool {
    all.contains(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(parts: &[&str]) -> Vec<String> {
        let parts = parts.iter().enumerate();
        let parts = parts.map(|(at, text)| Word { text: (*text).to_owned(), tokens: vec![at] });
        with_punctuation(at_spaces(parts.collect())).into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_begin_at_spaces_and_keep_their_punctuation() {
        assert_eq!(made(&[" He", "llo", ",", " world", "!"]), [" Hello,", " world!"]);
        assert_eq!(made(&[" (", "one", ")", " two"]), [" (one)", " two"]);
        assert_eq!(made(&[" \"", "Yes", ".", "\""]), [" \"Yes.\""]);
        assert_eq!(made(&[" well", "-", "known"]), [" well", "-known"]);
    }

    #[test]
    fn joined_words_have_all_their_tokens() {
        let parts = [" (", "one", ")"].iter().enumerate();
        let parts = parts.map(|(at, text)| Word { text: (*text).to_owned(), tokens: vec![at] });
        let words = with_punctuation(at_spaces(parts.collect()));
        assert_eq!(words[0].tokens, [0, 1, 2]);
    }
}
