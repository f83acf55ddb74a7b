//! How many tokens a step may have while streams wait for their next token.
//!
//! Learns what a token costs from the steps that ran and gives the number that fits the time a step
//! should take; and how many tokens of sequences that yield fit into a small part of the others' time.
//! Knows counts and durations, no clock and no sequences.

use std::time::Duration;

use crate::scheduler::Beside;

/// Fewest tokens of a step to learn from: the cost of smaller ones is mostly that of any step.
const LEAST_MEASURED: usize = 32;
/// Most tokens of a step before the first measurement.
const UNMEASURED: usize = 64;

/// Sequences that yield get one of so many parts of the time that steps of others take,
const YIELDING_PART: u64 = 20;
/// and make none of these steps longer by more than one of so many parts of it, or a token's time.
const LONGEST_PART: u64 = 10;
/// What they may have is counted in thousandths of a token.
const TOKEN: u64 = 1000;

/// What a step computed, and how long that took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    pub(super) num_tokens: usize,
    pub(super) num_sequences: usize,
    /// Tokens of sequences that yield, in a step that had others.
    pub(super) num_yielding: usize,
    pub(super) took: Duration,
}

/// Converts the time that steps took into a number of tokens.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    // Time that a step should take; `None` for no limit.
    target: Option<Duration>,
    // Nanoseconds per token of recent steps with prompt tokens.
    token_cost: Option<u64>,
    // Thousandths of tokens that sequences which yield may have of the next step, and the most there can be.
    yielding: u64,
    most_yielding: u64,
}

impl Pace {
    pub(super) fn new(target: Option<Duration>) -> Self {
        Self { target, token_cost: None, yielding: 0, most_yielding: TOKEN }
    }

    /// What the next step may have beside tokens that somebody waits for.
    pub(super) fn beside(&self) -> Beside {
        Beside {
            decodes: self.num_tokens(),
            others: usize::try_from(self.yielding / TOKEN).unwrap_or(usize::MAX),
        }
    }

    /// Most tokens of a step in which a stream decodes.
    fn num_tokens(&self) -> usize {
        let Some(target) = self.target else { return usize::MAX };
        match self.token_cost {
            Some(cost) => usize::try_from(nanoseconds(target) / cost).unwrap_or(usize::MAX),
            None => UNMEASURED,
        }
    }

    /// Time that a step should take, if there is a limit.
    pub(super) fn target(&self) -> Option<Duration> {
        self.target
    }

    /// Learns from a step.
    ///
    /// The fixed cost of a step counts as cost of its tokens. The estimate is used for steps of about
    /// the same size: from one step to the next the number of tokens converges to the one that meets
    /// the target, whatever part of the time is fixed.
    pub(super) fn observe(&mut self, ran: Ran) {
        let Ran { num_tokens, num_sequences, took, .. } = ran;
        self.lend(ran);
        // A step of decodes alone reads all weights for a few tokens.
        if num_tokens < LEAST_MEASURED || num_tokens == num_sequences {
            return;
        }
        let cost = (nanoseconds(took) / num_tokens as u64).max(1);
        self.token_cost = Some(match self.token_cost {
            // The mean of old and new; one step that was held up must not count more than double.
            Some(known) => known.midpoint(cost.clamp(known / 2, known.saturating_mul(2))).max(1),
            None => cost,
        });
    }

    /// What sequences that yield took of a step is spent; of its time they may have a part later. As long
    /// as no token was measured, one costs as much as a step.
    fn lend(&mut self, Ran { num_tokens, num_sequences, num_yielding, took }: Ran) {
        let took = nanoseconds(took);
        let tokens = took.saturating_mul(TOKEN) / self.token_cost.unwrap_or(took).max(1);
        // The next step may be a short one.
        if num_tokens == num_sequences {
            self.most_yielding = (tokens / LONGEST_PART).max(TOKEN);
        }
        let lent = self.yielding.saturating_add(tokens / YIELDING_PART);
        let spent = TOKEN.saturating_mul(num_yielding as u64);
        self.yielding = lent.saturating_sub(spent).min(self.most_yielding);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
