//! Labels: a token for every answer to a question, which is the first of the reply.

use std::collections::HashSet;

use super::question::{Kind, Question};
use crate::http::error::ApiError;
use crate::text::tokenizer::Tokenizer;

/// What a predicate is answered with, best first: the words where each is one token.
const WORDS: [[&str; 2]; 5] =
    [["yes", "no"], ["Yes", "No"], ["true", "false"], ["Y", "N"], ["1", "0"]];

/// The labels of one question: how they are written, and their tokens.
#[derive(Clone, Debug)]
pub(super) struct Labels {
    pub(super) texts: Vec<String>,
    pub(super) tokens: Vec<u32>,
}

/// Finds the tokens that texts are at the beginning of a reply.
pub(super) struct LabelFinder<'a> {
    tokenizer: &'a Tokenizer,
    /// The end of every prompt, behind the question.
    tail: &'a str,
    tail_ids: Vec<u32>,
}

impl<'a> LabelFinder<'a> {
    /// For replies behind prompts that end with `tail`.
    pub(super) fn new(tokenizer: &'a Tokenizer, tail: &'a str) -> Self {
        let tail_ids = tokenizer.encode(tail, false).unwrap_or_default();
        Self { tokenizer, tail, tail_ids }
    }

    /// A label for every answer that the question allows.
    pub(super) fn labels(&self, question: &Question) -> Result<Labels, ApiError> {
        let wanted = question.options.len();
        let found = match question.kind {
            Kind::Predicate => {
                let mut pairs = WORDS.iter().map(|words| self.find(words.map(str::to_owned), 2));
                pairs.find(|labels| labels.tokens.len() == wanted)
            }
            Kind::Choice => Some(self.find(letters(), wanted)),
            Kind::Score => Some(self.find((0..wanted).map(|level| level.to_string()), wanted)),
        };
        let found = found.unwrap_or(Labels { texts: Vec::new(), tokens: Vec::new() });
        if found.tokens.len() < wanted {
            let Question { path, .. } = question;
            let message = format!(
                "{path}: this model's vocabulary has tokens for {} answers to such a question, not \
                 for {wanted}",
                found.tokens.len()
            );
            return Err(ApiError::field(path, message));
        }
        Ok(found)
    }

    /// The first `wanted` of the texts that are one token each, all different.
    fn find(&self, texts: impl IntoIterator<Item = String>, wanted: usize) -> Labels {
        let (mut labels, mut seen) =
            (Labels { texts: Vec::new(), tokens: Vec::new() }, HashSet::new());
        for text in texts {
            if labels.tokens.len() == wanted {
                break;
            }
            if let Some(token) = self.token(&text).filter(|token| seen.insert(*token)) {
                labels.texts.push(text);
                labels.tokens.push(token);
            }
        }
        labels
    }

    /// The one token that a text adds behind the tail.
    fn token(&self, text: &str) -> Option<u32> {
        let ids = self.tokenizer.encode(&format!("{}{text}", self.tail), false).ok()?;
        match ids.strip_prefix(&self.tail_ids[..])? {
            [token] => Some(*token),
            _ => None,
        }
    }
}

/// A to Z, then AA to ZZ.
fn letters() -> impl Iterator<Item = String> {
    let one = || ('A'..='Z').map(String::from);
    one().chain(one().flat_map(move |first| one().map(move |second| format!("{first}{second}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_letters_for_all_choices() {
        let letters: Vec<String> = letters().collect();
        assert_eq!((letters.len(), letters[25].as_str(), letters[26].as_str()), (702, "Z", "AA"));
        assert_eq!(letters.iter().collect::<HashSet<_>>().len(), letters.len());
    }
}
