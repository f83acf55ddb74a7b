//! Penalties on tokens that occurred before.
//!
//! Repetition as in CTRL (Keskar et al. 2019) over prompt and output, frequency and presence as
//! OpenAI defines them, over the output alone.

use std::collections::HashMap;

use super::params::SamplingParams;

/// What occurred so far, as far as the parameters ask.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenCounts {
    // Occurrences in the output; prompt tokens stand here with 0.
    counts: HashMap<u32, u32>,
    tracked: bool,
}

impl TokenCounts {
    pub(super) fn new(params: &SamplingParams, prompt: &[u32]) -> Self {
        let repetition = differs(params.repetition_penalty, 1.0);
        let tracked = repetition
            || differs(params.frequency_penalty, 0.0)
            || differs(params.presence_penalty, 0.0);
        let prompt = if repetition { prompt } else { &[] };
        Self { counts: prompt.iter().map(|token| (*token, 0)).collect(), tracked }
    }

    /// Whether no logit is to change.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Every token that a logit is to change of, with its occurrences in the output.
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^24")]
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, f32)> {
        self.counts.iter().map(|(token, count)| (*token, *count as f32))
    }

    pub(super) fn push(&mut self, token: u32) {
        if self.tracked {
            *self.counts.entry(token).or_insert(0) += 1;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^24")]
    pub(super) fn apply(&self, params: &SamplingParams, logits: &mut [f32]) {
        for (token, count) in &self.counts {
            let Some(logit) = logits.get_mut(*token as usize) else { continue };
            if *logit > 0.0 {
                *logit /= params.repetition_penalty;
            } else {
                *logit *= params.repetition_penalty;
            }
            *logit -= *count as f32 * params.frequency_penalty;
            if *count > 0 {
                *logit -= params.presence_penalty;
            }
        }
    }
}

fn differs(value: f32, neutral: f32) -> bool {
    (value - neutral).abs() > 0.0
}
