//! What a request asks of the sampler, validated: every value here is in range.

use std::sync::Arc;

pub use super::dry::{Breakers, DryParams};
use super::thoughts::ThoughtParams;
use crate::structured::grammar::Grammar;

/// How the next token of a sequence is drawn. Made by `http::types::sampling`, which checks ranges.
#[derive(Clone, Debug)]
pub struct SamplingParams {
    /// Divides the logits; 0 means greedy.
    pub temperature: f32,
    /// Smallest probability mass kept, in (0, 1]; 1 is off.
    pub top_p: f32,
    /// Number of most likely tokens kept; 0 is off.
    pub top_k: u32,
    /// Least probability kept, relative to the most likely token, in [0, 1]; 0 is off.
    pub min_p: f32,
    /// Share of probability kept of the most typical tokens, in (0, 1]; 1 is off.
    pub typical_p: f32,
    /// Standard deviations below the largest logit that are kept; 0 is off.
    pub top_n_sigma: f32,
    /// Chance that the most likely tokens are excluded, in [0, 1]; 0 is off.
    pub xtc_probability: f32,
    /// Probability from which a token counts as one of them, all but the least likely of which are
    /// excluded; above 0.5 there are no two of them.
    pub xtc_threshold: f32,
    /// Cost of repetitions.
    pub dry: Option<DryParams>,
    /// Divides positive and multiplies negative logits of prompt and output tokens; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted once per earlier occurrence in the output; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted once if the token occurs in the output; 0 is off.
    pub presence_penalty: f32,
    /// Added to the logits of single tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of this sequence's random numbers.
    pub seed: u64,
    /// Report the drawn token's logprob and those of this many most likely tokens (0 to 20).
    pub logprobs: Option<u8>,
    /// What the answer must be like.
    pub grammar: Option<Arc<Grammar>>,
    /// Thoughts before the answer, where a grammar has to wait for them or they have a budget.
    pub thoughts: Option<ThoughtParams>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            typical_p: 1.0,
            top_n_sigma: 0.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            dry: None,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
            logprobs: None,
            grammar: None,
            thoughts: None,
        }
    }
}

/// When a search ends before every beam has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyStopping {
    /// When the best beam, if it ended now, would not be among the best answers.
    #[default]
    Estimated,
    /// As soon as there are as many answers as beams.
    WhenFull,
    /// When no continuation of the best beam could be among the best answers.
    Never,
}

/// How answers are searched instead of drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeamParams {
    /// Beams that go on at each step, at least 1.
    pub width: usize,
    /// Answers to give, at least 1 and at most `width`.
    pub answers: usize,
    /// An answer's score is its log-probability divided by its length to this power.
    pub length_penalty: f64,
    /// When to end.
    pub early_stopping: EarlyStopping,
}
