//! The clocks of one sequence.

use std::time::{Duration, Instant};

use super::output::SequenceStats;

/// When a sequence was submitted, first scheduled, and gave its first token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    submitted: Instant,
    first_scheduled: Option<Instant>,
    first_token: Option<Instant>,
}

impl Timeline {
    /// The clocks of a sequence that is submitted now.
    pub(super) fn submitted() -> Self {
        Self { submitted: Instant::now(), first_scheduled: None, first_token: None }
    }

    /// Notes that the sequence is scheduled for the first time; how long it waited for that.
    pub(super) fn scheduled(&mut self, now: Instant) -> Duration {
        self.first_scheduled = Some(now);
        now - self.submitted
    }

    /// Whether the sequence was scheduled at least once.
    pub(super) fn is_scheduled(&self) -> bool {
        self.first_scheduled.is_some()
    }

    /// Notes that the sequence has a token; only the first one counts.
    pub(super) fn token(&mut self, now: Instant) {
        self.first_token.get_or_insert(now);
    }

    /// The figures of a sequence that ends `now`.
    pub(super) fn stats(
        &self,
        cached_tokens: usize,
        preemptions: u32,
        now: Instant,
    ) -> SequenceStats {
        let scheduled = self.first_scheduled.unwrap_or(now);
        let first_token = self.first_token.unwrap_or(now);
        SequenceStats {
            cached_tokens,
            preemptions,
            queue: scheduled - self.submitted,
            prefill: first_token - scheduled,
            decode: now - first_token,
        }
    }
}
