//! How many tokens a step may have while streams wait for their next token.
//!
//! Learns what a token costs from the steps that ran and gives the number that fits the time a step
//! should take. Knows counts and durations, no clock and no sequences.

use std::time::Duration;

/// Fewest tokens of a step to learn from: the cost of smaller ones is mostly that of any step.
const LEAST_MEASURED: usize = 32;
/// Most tokens of a step before the first measurement.
const UNMEASURED: usize = 64;

/// Converts the time that steps took into a number of tokens.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    // Time that a step should take; `None` for no limit.
    target: Option<Duration>,
    // Nanoseconds per token of recent steps with prompt tokens.
    token_cost: Option<u64>,
}

impl Pace {
    pub(super) fn new(target: Option<Duration>) -> Self {
        Self { target, token_cost: None }
    }

    /// Most tokens of a step in which a stream decodes.
    pub(super) fn num_tokens(&self) -> usize {
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

    /// Learns from a step of `num_tokens` tokens of `num_sequences` sequences.
    ///
    /// The fixed cost of a step counts as cost of its tokens. The estimate is used for steps of about
    /// the same size: from one step to the next the number of tokens converges to the one that meets
    /// the target, whatever part of the time is fixed.
    pub(super) fn observe(&mut self, num_tokens: usize, num_sequences: usize, took: Duration) {
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
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
