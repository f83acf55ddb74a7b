//! `bad_words`: texts that an answer may not hold, as the sequences of tokens that spell them.
//!
//! As in vLLM, a word is spelled at the beginning of a text and behind a space; where the second
//! spelling only puts a token before the first, the first covers it.

use crate::http::error::ApiError;
use crate::http::wire::bounds::{MAX_BAD_WORD_BYTES, MAX_BAD_WORDS};
use crate::text::tokenizer::Tokenizer;

const NAME: &str = "bad_words";

/// Checks the words, without spaces before them.
pub(super) fn checked(words: Option<&[String]>) -> Result<Vec<String>, ApiError> {
    let words = words.unwrap_or_default();
    if words.len() > MAX_BAD_WORDS {
        let message =
            format!("{NAME} must have at most {MAX_BAD_WORDS} words, got {}", words.len());
        return Err(ApiError::field(NAME, message));
    }
    let word = |(at, word): (usize, &String)| {
        let word = word.trim_start();
        if !(1..=MAX_BAD_WORD_BYTES).contains(&word.len()) {
            let message = format!(
                "{NAME}[{at}] must have 1 to {MAX_BAD_WORD_BYTES} bytes without spaces before \
                 them, got {}",
                word.len()
            );
            return Err(ApiError::field(format!("{NAME}[{at}]"), message));
        }
        Ok(word.to_owned())
    };
    words.iter().enumerate().map(word).collect()
}

/// The sequences of tokens that spell checked words. Not for async threads: the first call of all
/// builds a tokenizer.
pub(super) fn token_sequences(
    words: &[String],
    tokenizer: &Tokenizer,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let mut sequences: Vec<Vec<u32>> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let spelled = |text: &str| {
            let ids = tokenizer.encode_plain(text);
            ids.map_err(|error| ApiError::field(format!("{NAME}[{at}]"), error.to_string()))
        };
        let plain = spelled(word)?;
        let spaced = spelled(&format!(" {word}"))?;
        if spaced.first() != plain.first() && spaced.len() == plain.len() {
            sequences.push(spaced);
        }
        sequences.push(plain);
    }
    sequences.retain(|sequence| !sequence.is_empty());
    sequences.sort_unstable();
    sequences.dedup();
    Ok(sequences)
}
