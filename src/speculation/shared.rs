//! Answers that have ended, as drafts for others: the same question asked again, one form filled in many
//! times.

use std::collections::HashMap;

use super::drafter::SEPARATOR;
use super::match_index::MatchIndex;

/// Tokens that are kept of a scope; twice as many before the older ones are dropped.
const MOST_TOKENS: usize = 32_768;

/// Scopes that are kept.
const MOST_SCOPES: usize = 32;

/// Tokens that a context must have in common with the text: of all answers ever given, more than of one's
/// own.
const GRAM: usize = 4;

/// Ended answers by scope.
#[derive(Clone, Debug)]
pub(super) struct SharedAnswers {
    scopes: HashMap<u128, Scope>,
    none: MatchIndex,
    clock: u64,
}

#[derive(Clone, Debug)]
struct Scope {
    answers: MatchIndex,
    used: u64,
}

impl Default for SharedAnswers {
    fn default() -> Self {
        Self { scopes: HashMap::new(), none: MatchIndex::new(GRAM), clock: 0 }
    }
}

impl SharedAnswers {
    /// The answers of a scope.
    pub(super) fn of(&self, scope: u128) -> &MatchIndex {
        self.scopes.get(&scope).map_or(&self.none, |scope| &scope.answers)
    }

    /// Adds an answer; positions in the scope's text are no longer those from before.
    pub(super) fn add(&mut self, scope: u128, answer: &[u32]) {
        if answer.len() <= GRAM {
            return;
        }
        self.clock += 1;
        let unused = || Scope { answers: MatchIndex::new(GRAM), used: 0 };
        let own = self.scopes.entry(scope).or_insert_with(unused);
        own.used = self.clock;
        let answer = &answer[answer.len().saturating_sub(MOST_TOKENS)..];
        if own.answers.tokens().len() + answer.len() > 2 * MOST_TOKENS {
            let old = std::mem::replace(&mut own.answers, MatchIndex::new(GRAM));
            let kept = old.tokens().len().min(MOST_TOKENS);
            own.answers.extend(&old.tokens()[old.tokens().len() - kept..]);
        }
        own.answers.extend(answer);
        own.answers.push(SEPARATOR);
        if self.scopes.len() > MOST_SCOPES {
            let oldest = self.scopes.iter().min_by_key(|(_, scope)| scope.used);
            let oldest = *oldest.expect("there are many").0;
            self.scopes.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_scopes_are_bounded() {
        let mut answers = SharedAnswers::default();
        let answer: Vec<u32> = (0..3000).collect();
        for scope in 0..40 {
            (0..30).for_each(|_| answers.add(scope, &answer));
            let kept = answers.of(scope).tokens().len();
            assert!((MOST_TOKENS..=2 * MOST_TOKENS + 1).contains(&kept), "{kept}");
            assert_eq!(answers.of(scope).longest(&[8, 9, 10, 11]).unwrap().length, 4);
        }
        assert_eq!(answers.scopes.len(), MOST_SCOPES);
        assert!(answers.of(0).tokens().is_empty());
        assert!(!answers.of(39).tokens().is_empty());
    }
}
