//! A compiled grammar: the automaton that many sequences share. Refuses to know how it was compiled.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::TokenParser;

use super::vocabulary::Vocabulary;

/// A compiled grammar. Shared by all sequences that follow it, which share what they learn of it.
pub struct Grammar {
    pub(super) vocabulary: Arc<Vocabulary>,
    // Never walked: the automaton of a sequence that failed is not to be trusted, and one that has
    // reached its limit of states can't go on.
    pub(super) pristine: TokenParser,
    walked: Mutex<TokenParser>,
}

impl Grammar {
    /// A grammar of a parser that stands at the start.
    pub(super) fn new(vocabulary: Arc<Vocabulary>, pristine: TokenParser) -> Self {
        let walked = Mutex::new(pristine.deep_clone());
        Self { vocabulary, pristine, walked }
    }

    /// A parser at the start that shares what others learn of the grammar.
    pub(super) fn parser(&self) -> TokenParser {
        self.walked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes later cursors share nothing with those that exist.
    pub(super) fn renew(&self) {
        *self.walked.lock().unwrap_or_else(PoisonError::into_inner) = self.pristine.deep_clone();
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammar").finish_non_exhaustive()
    }
}
