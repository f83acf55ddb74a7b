//! One sequence on its way through a grammar: which tokens may come next, and which came.
//!
//! A cursor depends on nothing but its grammar and the tokens it accepted, so a sequence that was
//! preempted keeps its own, and one that is replayed gets the same masks. Clones go on
//! independently. Every failure is an error: the engine's panics are caught, and a cursor that
//! failed stays failed.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use llguidance::TokenParser;
use llguidance::api::StopReason;
use toktrie::SimpleVob;

use super::error::{GrammarError, first_line};
use super::grammar::Grammar;

/// A mask usually takes some microseconds.
const SLOW_MASK: Duration = Duration::from_millis(100);
/// Slow masks in a row that end a sequence; fewer may be the machine's fault.
const MAX_SLOW_MASKS: usize = 4;

/// The state of one sequence.
#[derive(Clone)]
pub struct Cursor {
    grammar: Arc<Grammar>,
    parser: TokenParser,
    // Of the current state; `None` until it is asked for.
    mask: Option<SimpleVob>,
    ended: bool,
    // Masks in a row that took too long.
    num_slow: usize,
    failed: Option<GrammarError>,
}

impl Grammar {
    /// A cursor at the start.
    pub fn cursor(self: &Arc<Self>) -> Cursor {
        Cursor::new(Arc::clone(self), self.parser())
    }
}

impl Cursor {
    pub(super) fn new(grammar: Arc<Grammar>, parser: TokenParser) -> Self {
        Self { grammar, parser, mask: None, ended: false, num_slow: 0, failed: None }
    }

    /// The tokens that may come next, a bit each, the lowest bit of the first word for id 0; as
    /// many words as the vocabulary's `mask_words`. The ids that end a sequence are among them
    /// exactly when the text may end here. Computed once a state.
    ///
    /// # Errors
    /// When the grammar outgrew its limits, or leads nowhere.
    pub fn mask(&mut self) -> Result<&[u32], GrammarError> {
        if self.mask.is_none() {
            let mask = if self.parser.stop_reason() == StopReason::NotStopped && !self.ended {
                let start = Instant::now();
                let mask = self.run(TokenParser::compute_mask)?;
                self.check_pace(start.elapsed())?;
                mask
            } else {
                self.check()?;
                self.parser.token_env.tok_trie().eos_token_set()
            };
            self.mask = Some(mask);
        }
        let words = self.grammar.vocabulary.mask_words();
        Ok(&self.mask.as_ref().expect("it was just computed").as_slice()[..words])
    }

    /// Whether `token` may come next.
    ///
    /// # Errors
    /// As [`mask`](Self::mask).
    pub fn allows(&mut self, token: u32) -> Result<bool, GrammarError> {
        let word = self.mask()?.get(token as usize / 32).copied().unwrap_or(0);
        Ok(word >> (token % 32) & 1 == 1)
    }

    /// Goes on by `token`. A refused token changes nothing.
    ///
    /// # Errors
    /// [`GrammarError::Rejected`] when the token may not come next; others as
    /// [`mask`](Self::mask).
    pub fn accept(&mut self, token: u32) -> Result<(), GrammarError> {
        self.check()?;
        let is_eos = self.parser.token_env.tok_trie().eos_tokens().contains(&token);
        if is_eos && (self.ended || self.can_end()?) {
            self.ended = true;
            self.mask = None;
            return Ok(());
        }
        let word = self.mask.as_ref().and_then(|mask| mask.as_slice().get(token as usize / 32));
        let is_allowed = word.is_some_and(|word| word >> (token % 32) & 1 == 1);
        let known = (token as usize) < self.grammar.vocabulary.size();
        // Where one token is forced the mask has it alone; the same text in other tokens is right.
        if self.ended
            || !known
            || !is_allowed && !self.run(|parser| parser.validate_token(token))?
        {
            return Err(GrammarError::Rejected(token));
        }
        self.mask = None;
        self.run(|parser| {
            let backtracked = parser.consume_token(token)?;
            anyhow::ensure!(backtracked == 0, "the engine asked to take tokens back");
            parser.check_stop()
        })?;
        Ok(())
    }

    /// Tokens that must come next, in order: no other text can follow. Empty where there is a
    /// choice, and where the tokenizer doesn't say how it would split the text. Accept them like
    /// drawn ones.
    ///
    /// # Errors
    /// As [`mask`](Self::mask).
    pub fn forced(&mut self) -> Result<Vec<u32>, GrammarError> {
        if self.is_complete() {
            return Ok(Vec::new());
        }
        self.run(|parser| Ok(parser.compute_ff_tokens()))
    }

    /// Whether the text may end here.
    ///
    /// # Errors
    /// As [`mask`](Self::mask).
    pub fn can_end(&mut self) -> Result<bool, GrammarError> {
        if self.is_complete() {
            return Ok(true);
        }
        self.run(|parser| Ok(parser.is_accepting()))
    }

    /// Whether the text must end here, or has ended.
    pub fn is_complete(&self) -> bool {
        self.ended || self.parser.stop_reason() == StopReason::NoExtension
    }

    /// The grammar that the cursor walks.
    pub fn grammar(&self) -> &Arc<Grammar> {
        &self.grammar
    }

    // The engine counts its work, but not all of it: an ambiguous grammar gets slower with every
    // token. Masks are made on the engine's thread, where everyone waits for them.
    fn check_pace(&mut self, took: Duration) -> Result<(), GrammarError> {
        self.num_slow = if took > SLOW_MASK { self.num_slow + 1 } else { 0 };
        if self.num_slow < MAX_SLOW_MASKS {
            return Ok(());
        }
        let limit = SLOW_MASK.as_millis();
        let reason = format!("{MAX_SLOW_MASKS} steps in a row took above {limit} ms");
        self.failed = Some(GrammarError::TooComplex(reason));
        self.check()
    }

    fn check(&self) -> Result<(), GrammarError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn run<T>(
        &mut self,
        step: impl FnOnce(&mut TokenParser) -> anyhow::Result<T>,
    ) -> Result<T, GrammarError> {
        self.check()?;
        let parser = &mut self.parser;
        let outcome = llguidance::panic_utils::catch_unwind(AssertUnwindSafe(|| step(parser)));
        outcome.map_err(|error| {
            let text = first_line(&error.to_string());
            let error = match self.parser.stop_reason() {
                StopReason::LexerTooComplex | StopReason::ParserTooComplex => {
                    GrammarError::TooComplex(text)
                }
                StopReason::NoExtensionBias => {
                    GrammarError::TooComplex("no token continues the text".to_owned())
                }
                _ => GrammarError::Internal(text),
            };
            self.grammar.renew();
            self.failed = Some(error.clone());
            error
        })
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let num_tokens = self.parser.num_tokens();
        f.debug_struct("Cursor")
            .field("num_tokens", &num_tokens)
            .field("ended", &self.ended)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}
