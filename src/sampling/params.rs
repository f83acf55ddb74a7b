//! What a request asks of the sampler, validated: every value here is in range.
//!
//! # How to add a sampling parameter
//!
//! One that is a number:
//!
//! 1. `src/sampling/params.rs`: a field of `SamplingParams` with its default, and a row of `SCALARS`.
//!    All protocols then take it, check its range and describe it, and a beam search refuses it
//!    where it shapes draws.
//! 2. `src/sampling/filters.rs` (or `src/sampling/penalties.rs`): what it does.
//! 3. `src/guide/api.md`: its name, where it lists them.

use std::sync::Arc;

pub use super::dry::{Breakers, DryParams};
use super::reasoning::ReasoningParams;
use crate::structured::grammar::Grammar;

/// Below this temperature the most likely token is taken.
pub const GREEDY_TEMPERATURE: f32 = 1e-5;

/// How the next token of a sequence is drawn. Made by `http::generate::options`, which checks ranges.
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
    /// Only so many of the last tokens of prompt and output count for the penalties above; `None`:
    /// all.
    pub repeat_last_n: Option<usize>,
    /// Added to the logits of single tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// The only tokens that may be drawn, ascending; `None`: all.
    pub allowed_token_ids: Option<Arc<[u32]>>,
    /// Sequences of tokens, none empty, of which the last is not drawn behind the others.
    pub bad_words: Vec<Vec<u32>>,
    /// Seed of this sequence's random numbers.
    pub seed: u64,
    /// Report the drawn token's logprob and those of this many most likely tokens.
    pub logprobs: Option<u32>,
    /// Report the logprobs of these tokens instead of the most likely ones.
    pub logprob_token_ids: Option<Arc<[u32]>>,
    /// What the answer must be like.
    pub grammar: Option<Arc<Grammar>>,
    /// Reasoning before the answer, where a grammar has to wait for them or they have a budget.
    pub reasoning: Option<ReasoningParams>,
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
            repeat_last_n: None,
            logit_bias: Vec::new(),
            allowed_token_ids: None,
            bad_words: Vec::new(),
            seed: 0,
            logprobs: None,
            logprob_token_ids: None,
            grammar: None,
            reasoning: None,
        }
    }
}

/// The lowest value of a [`Scalar`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Low {
    /// This value is the first of the range.
    At(f64),
    /// The range begins behind this value.
    Above(f64),
}

/// A sampling parameter that is one number: its name in requests, and what it may be. Its default
/// is what [`SamplingParams::default`] has.
#[derive(Clone, Copy, Debug)]
pub struct Scalar {
    /// As requests spell it.
    pub name: &'static str,
    /// Where its range begins.
    pub low: Low,
    /// The last value of its range.
    pub high: f64,
    /// Reads it.
    pub get: fn(&SamplingParams) -> f32,
    /// Writes it.
    pub set: fn(&mut SamplingParams, f32),
    /// Present if it shapes the distribution that tokens are drawn from: the values that don't.
    pub neutral: Option<Neutral>,
    /// Whether the sampler on a GPU knows it. If not, a draw with a value that is not neutral is
    /// made on the host.
    pub on_device: bool,
}

/// The values of a parameter that leave the distribution as it is.
#[derive(Clone, Copy, Debug)]
pub struct Neutral {
    /// Whether a value is one of them.
    pub holds: fn(f32) -> bool,
    /// Which they are, for messages.
    pub words: &'static str,
}

/// A row of [`SCALARS`].
macro_rules! scalar {
    ($name:ident, $low:expr, $high:expr, $neutral:expr, on_device: $on_device:expr) => {
        Scalar {
            name: stringify!($name),
            low: $low,
            high: $high,
            get: |params| params.$name,
            set: |params, value| params.$name = value,
            neutral: $neutral,
            on_device: $on_device,
        }
    };
}

/// Every scalar parameter, once: the API's checks and its description, beam search, and the choice
/// between sampling on the host and on the device all read this table.
pub const SCALARS: &[Scalar] = &[
    scalar!(temperature, Low::At(0.0), 2.0, Some(GREEDY_OR_ONE), on_device: true),
    scalar!(top_p, Low::Above(0.0), 1.0, Some(ONE), on_device: true),
    scalar!(min_p, Low::At(0.0), 1.0, Some(ZERO), on_device: true),
    scalar!(typical_p, Low::Above(0.0), 1.0, Some(ONE), on_device: false),
    scalar!(top_n_sigma, Low::At(-1.0), 100.0, Some(ZERO), on_device: false),
    scalar!(xtc_probability, Low::At(0.0), 1.0, Some(ZERO), on_device: false),
    scalar!(xtc_threshold, Low::At(0.0), 1.0, None, on_device: true),
    // Smaller divisors are no normal numbers in f32; larger ones are not finite.
    scalar!(repetition_penalty, Low::At(LEAST_F32), MOST_F32, None, on_device: true),
    scalar!(frequency_penalty, Low::At(-2.0), 2.0, None, on_device: true),
    scalar!(presence_penalty, Low::At(-2.0), 2.0, None, on_device: true),
];

const GREEDY_OR_ONE: Neutral =
    Neutral { holds: |value| value <= 0.0 || (1.0..=1.0).contains(&value), words: "0 or 1" };
const ONE: Neutral = Neutral { holds: |value| value >= 1.0, words: "1" };
const ZERO: Neutral = Neutral { holds: |value| value <= 0.0, words: "0" };
const LEAST_F32: f64 = f32::MIN_POSITIVE as f64;
const MOST_F32: f64 = f32::MAX as f64;

impl Scalar {
    /// A value of a request as the sampler takes it.
    ///
    /// # Errors
    /// The bound of a value out of range, as it goes on behind "must be".
    pub fn check(&self, value: f64) -> Result<f32, String> {
        let high = self.high;
        let begins = match self.low {
            Low::At(low) => value >= low,
            Low::Above(low) => value > low,
        };
        if begins && value <= high {
            #[expect(clippy::cast_possible_truncation, reason = "the sampler works in f32")]
            return Ok(value as f32);
        }
        Err(match self.low {
            _ if high >= MOST_F32 => "above 0 and finite".to_owned(),
            Low::At(low) => format!("in [{low}, {high}]"),
            Low::Above(low) => format!("in ({low}, {high}]"),
        })
    }

    /// Whether this parameter leaves the distribution as it is.
    pub fn is_neutral(&self, params: &SamplingParams) -> bool {
        self.neutral.is_none_or(|neutral| (neutral.holds)((self.get)(params)))
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
