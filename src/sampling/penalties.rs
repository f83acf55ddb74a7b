//! Penalties on tokens that occurred before.
//!
//! Repetition as in CTRL (Keskar et al. 2019) over prompt and output, frequency and presence as
//! OpenAI defines them, over the output alone; of both, only the last tokens where a window is set,
//! as llama.cpp has it.

use std::collections::{HashMap, VecDeque};

use super::params::SamplingParams;

/// What occurred so far, as far as the parameters ask.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenCounts {
    counts: HashMap<u32, Occurrences>,
    window: Option<Window>,
    tracked: bool,
}

/// How often a token occurred.
#[derive(Clone, Copy, Debug, Default)]
struct Occurrences {
    anywhere: u32,
    output: u32,
}

/// The last tokens, oldest first, and whether each is of the output.
#[derive(Clone, Debug)]
struct Window {
    tokens: VecDeque<(u32, bool)>,
    most: usize,
}

impl TokenCounts {
    pub(super) fn new(params: &SamplingParams, prompt: &[u32]) -> Self {
        let repetition = differs(params.repetition_penalty, 1.0);
        let penalizes = repetition
            || differs(params.frequency_penalty, 0.0)
            || differs(params.presence_penalty, 0.0);
        let window = params.repeat_last_n;
        let mut counts = Self {
            counts: HashMap::new(),
            window: window.map(|most| Window { tokens: VecDeque::new(), most }),
            tracked: penalizes && window != Some(0),
        };
        let prompt = match window {
            Some(most) => &prompt[prompt.len().saturating_sub(most)..],
            None => prompt,
        };
        for token in prompt.iter().filter(|_| repetition) {
            counts.add(*token, false);
        }
        counts
    }

    /// Whether no logit is to change.
    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Every token that a logit is to change of, with its occurrences in the output.
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^24")]
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, f32)> {
        self.counts.iter().map(|(token, seen)| (*token, seen.output as f32))
    }

    /// Counts a token of the output.
    pub(super) fn push(&mut self, token: u32) {
        self.add(token, true);
    }

    fn add(&mut self, token: u32, output: bool) {
        if !self.tracked {
            return;
        }
        let seen = self.counts.entry(token).or_default();
        seen.anywhere += 1;
        seen.output += u32::from(output);
        let Some(window) = &mut self.window else { return };
        window.tokens.push_back((token, output));
        if window.tokens.len() > window.most
            && let Some((oldest, output)) = window.tokens.pop_front()
            && let Some(seen) = self.counts.get_mut(&oldest)
        {
            seen.anywhere -= 1;
            seen.output -= u32::from(output);
            if seen.anywhere == 0 {
                self.counts.remove(&oldest);
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^24")]
    pub(super) fn apply(&self, params: &SamplingParams, logits: &mut [f32]) {
        for (token, seen) in &self.counts {
            let Some(logit) = logits.get_mut(*token as usize) else { continue };
            if *logit > 0.0 {
                *logit /= params.repetition_penalty;
            } else {
                *logit *= params.repetition_penalty;
            }
            *logit -= seen.output as f32 * params.frequency_penalty;
            if seen.output > 0 {
                *logit -= params.presence_penalty;
            }
        }
    }
}

fn differs(value: f32, neutral: f32) -> bool {
    (value - neutral).abs() > 0.0
}
