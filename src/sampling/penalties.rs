//! Penalties on tokens that occurred before.
//!
//! Repetition as in CTRL (Keskar et al. 2019) over prompt and output, frequency and presence as
//! OpenAI defines them, over the output alone; of both, only the last tokens where a window is set,
//! as llama.cpp has it.

use std::collections::{HashMap, VecDeque};

use super::kept_counts::Entries;
use super::params::SamplingParams;
use crate::kernels::sample::{Counts, DeviceLogits};

/// What occurred so far, as far as the parameters ask.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenCounts {
    counts: HashMap<u32, Occurrences>,
    window: Option<Window>,
    tracked: bool,
    /// The same where draws are made on a device.
    on_device: Entries,
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
            on_device: Entries::default(),
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

    /// What is asked of a device with a draw from `logits`.
    #[expect(clippy::cast_precision_loss, reason = "counts stay below 2^24")]
    pub(super) fn ask(&mut self, logits: &DeviceLogits) -> candle_core::Result<Counts> {
        if self.counts.is_empty() && self.on_device.is_unknown() {
            return Ok(Counts::default());
        }
        if self.on_device.is_unknown() {
            for token in self.counts.keys() {
                self.on_device.set(*token);
            }
        }
        let counts = &self.counts;
        let output = |token: u32| counts.get(&token).map_or(0.0, |seen| seen.output as f32);
        self.on_device.ask(logits, output)
    }

    /// Forgets what a device keeps, since nobody knows whether it took what was asked.
    pub(super) fn forget_device(&mut self) {
        self.on_device = Entries::default();
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
        let kept = !self.on_device.is_unknown();
        if kept {
            self.on_device.set(token);
        }
        let Some(window) = &mut self.window else { return };
        window.tokens.push_back((token, output));
        if window.tokens.len() > window.most
            && let Some((oldest, output)) = window.tokens.pop_front()
            && let Some(seen) = self.counts.get_mut(&oldest)
        {
            seen.anywhere -= 1;
            seen.output -= u32::from(output);
            let is_gone = seen.anywhere == 0;
            if is_gone {
                self.counts.remove(&oldest);
            }
            if kept && is_gone {
                self.on_device.remove(oldest);
            } else if kept {
                self.on_device.set(oldest);
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
