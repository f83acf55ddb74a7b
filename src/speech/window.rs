//! The text of one window: tokens one after the other, again at a higher temperature where the result
//! looks like a failure.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::error::SpeechError;
use super::marks::Marks;
use super::rules::{self, log_sum_exp};

/// When a result counts as a failure, as in the reference decoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Text that compresses better than this repeats itself.
    pub compression_ratio: f64,
    /// Tokens less likely than this in the mean are guesses.
    pub log_probability: f64,
    /// With guesses, and silence likelier than this, nobody spoke.
    pub no_speech: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        use candle_transformers::models::whisper::{
            COMPRESSION_RATIO_THRESHOLD, LOGPROB_THRESHOLD, NO_SPEECH_THRESHOLD,
        };
        Self {
            compression_ratio: COMPRESSION_RATIO_THRESHOLD,
            log_probability: LOGPROB_THRESHOLD,
            no_speech: NO_SPEECH_THRESHOLD,
        }
    }
}

/// What the decoder wrote about a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// Tokens of text and times, without the one that ends them.
    pub tokens: Vec<u32>,
    /// The logarithm of the probability of each, among those that the rules left.
    pub log_probabilities: Vec<f32>,
    /// Their mean, with that of the end.
    pub mean_log_probability: f64,
    /// The probability that nobody spoke.
    pub no_speech: f64,
    /// How tokens were chosen: the likeliest at 0, else drawn.
    pub temperature: f64,
    /// Bytes of the text for each byte of it compressed.
    pub compression_ratio: f64,
    /// Whether the text came to its end before the room for tokens did.
    pub ended: bool,
}

impl Written {
    /// Whether the window holds no speech.
    pub fn is_silence(&self, thresholds: &Thresholds) -> bool {
        self.no_speech > thresholds.no_speech
            && self.mean_log_probability < thresholds.log_probability
    }

    fn has_failed(&self, thresholds: &Thresholds) -> bool {
        if self.is_silence(thresholds) {
            return false;
        }
        self.compression_ratio > thresholds.compression_ratio
            || self.mean_log_probability < thresholds.log_probability
    }
}

/// Writes at each temperature in turn until the result looks right; the last one counts in any case.
///
/// # Errors
/// As `write`.
pub fn with_fallback(
    temperatures: &[f64],
    thresholds: &Thresholds,
    mut write: impl FnMut(f64) -> Result<Written, SpeechError>,
) -> Result<Written, SpeechError> {
    let (last, before) = temperatures.split_last().expect("there is a temperature");
    for temperature in before {
        let written = write(*temperature)?;
        if !written.has_failed(thresholds) {
            return Ok(written);
        }
        tracing::debug!(
            temperature,
            written.compression_ratio,
            written.mean_log_probability,
            "a window is written again"
        );
    }
    write(*last)
}

/// Chooses tokens by the logits that the model gives.
pub struct Writer<'a> {
    marks: &'a Marks,
    temperature: f64,
    random: ChaCha12Rng,
    tokens: Vec<u32>,
    log_probabilities: Vec<f32>,
    sum: f64,
}

impl<'a> Writer<'a> {
    /// A writer of one window; draws depend on nothing but `seed`.
    pub fn new(marks: &'a Marks, temperature: f64, seed: [u64; 3]) -> Self {
        let mut bytes = [0; 32];
        for (place, part) in bytes.chunks_exact_mut(8).zip(seed) {
            place.copy_from_slice(&part.to_le_bytes());
        }
        Self {
            marks,
            temperature,
            random: ChaCha12Rng::from_seed(bytes),
            tokens: Vec::new(),
            log_probabilities: Vec::new(),
            sum: 0.0,
        }
    }

    /// Takes the next token; `None` at the end of the text.
    pub fn next(&mut self, mut logits: Vec<f32>) -> Option<u32> {
        rules::apply(self.marks, &self.tokens, &mut logits);
        let token = if self.temperature > 0.0 { self.draw(&logits) } else { likeliest(&logits) };
        let log_probability = f64::from(logits[token as usize]) - log_sum_exp(&logits);
        self.sum += log_probability;
        if token == self.marks.end {
            return None;
        }
        self.tokens.push(token);
        #[expect(clippy::cast_possible_truncation, reason = "logits are single precision")]
        self.log_probabilities.push(log_probability as f32);
        Some(token)
    }

    /// What was written; `ended` says whether the last token was the end.
    pub fn finish(self, ended: bool, no_speech: f64, compression_ratio: f64) -> Written {
        let count = self.tokens.len() + usize::from(ended);
        #[expect(clippy::cast_precision_loss, reason = "a window has few tokens")]
        let mean = self.sum / count.max(1) as f64;
        Written {
            tokens: self.tokens,
            log_probabilities: self.log_probabilities,
            mean_log_probability: mean,
            no_speech,
            temperature: self.temperature,
            compression_ratio,
            ended,
        }
    }

    /// The tokens so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    fn draw(&mut self, logits: &[f32]) -> u32 {
        let scaled: Vec<f32> = {
            #[expect(clippy::cast_possible_truncation, reason = "logits are single precision")]
            let factor = (1.0 / self.temperature) as f32;
            logits.iter().map(|logit| logit * factor).collect()
        };
        let total = log_sum_exp(&scaled);
        let mut left: f64 = self.random.random();
        let mut last = 0;
        for (token, logit) in (0..).zip(&scaled) {
            let share = (f64::from(*logit) - total).exp();
            if share > 0.0 {
                last = token;
                left -= share;
                if left < 0.0 {
                    break;
                }
            }
        }
        last
    }
}

/// The token with the largest logit, the first of several.
pub fn likeliest(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (token, logit) in (0..).zip(logits) {
        if *logit > best.1 {
            best = (token, *logit);
        }
    }
    best.0
}

/// Bytes of a text for each byte that zlib makes of it.
pub fn compression_ratio(text: &str) -> f64 {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).expect("memory takes all of it");
    let compressed = encoder.finish().expect("memory takes all of it");
    #[expect(clippy::cast_precision_loss, reason = "a window has little text")]
    let ratio = text.len() as f64 / compressed.len().max(1) as f64;
    ratio
}
