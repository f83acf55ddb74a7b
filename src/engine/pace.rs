//! How many tokens a step may have while streams wait for their next token.
//!
//! Learns what a token costs from the steps that ran and gives the number that fits the time a step
//! should take. Knows counts and durations, no clock and no sequences.

use std::time::Duration;

/// Steps of fewer tokens say more about what any step costs than about what a token does.
const LEAST_MEASURED: usize = 32;
/// Tokens of a step while nothing was measured.
const UNMEASURED: usize = 64;

/// Turns the time that steps took into a number of tokens.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    // What a step should take; `None` for as long as it needs.
    target: Option<Duration>,
    // Nanoseconds a token of a step with prompt tokens, lately.
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

    /// Learns from a step of `num_tokens` tokens of `num_sequences` sequences.
    ///
    /// A step's fixed cost counts as its tokens'. The estimate is right where it is used none the
    /// less: from one step to the next the number of tokens closes in on the one that meets the
    /// target, whatever part of the time is fixed.
    pub(super) fn observe(&mut self, num_tokens: usize, num_sequences: usize, took: Duration) {
        // A step of decodes alone reads all weights for a few tokens.
        if num_tokens < LEAST_MEASURED || num_tokens == num_sequences {
            return;
        }
        let cost = (nanoseconds(took) / num_tokens as u64).max(1);
        self.token_cost = Some(match self.token_cost {
            // Halfway, and one step that was held up must not count for more than twice its size.
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
