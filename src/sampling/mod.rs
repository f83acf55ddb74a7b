//! Which token comes next: logits and one sequence's state in, one token id out.
//!
//! The stages run in one fixed order: bias, suppressed tokens, penalties, temperature, top-k,
//! top-p, min-p, draw. Knows neither requests nor text.

pub mod filters;
pub mod logprobs;
pub mod params;
pub mod penalties;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use logprobs::TokenLogprobs;
use params::SamplingParams;
use penalties::TokenCounts;

/// Below this temperature the most likely token is taken.
pub const GREEDY_TEMPERATURE: f32 = 1e-5;

/// The model's numbers can't be sampled from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplingError {
    /// A logit is NaN, or none is finite.
    #[error("the model produced no usable logits: {0}")]
    BadLogits(String),
}

/// One drawn token.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledToken {
    /// Its id.
    pub token_id: u32,
    /// Present when the parameters ask for logprobs.
    pub logprobs: Option<TokenLogprobs>,
}

/// What one sequence carries from token to token. Survives preemption, so a token that was drawn
/// is never drawn again.
#[derive(Clone, Debug)]
pub struct SamplerState {
    params: SamplingParams,
    rng: ChaCha8Rng,
    counts: TokenCounts,
    // Ids that can't be drawn while fewer than `min_tokens` were.
    suppressed: Vec<u32>,
    min_tokens: usize,
    num_output: usize,
}

impl SamplerState {
    /// The state before the first token. `suppressed` can't be drawn among the first
    /// `min_tokens` tokens.
    pub fn new(
        params: SamplingParams,
        prompt: &[u32],
        min_tokens: usize,
        suppressed: Vec<u32>,
    ) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(params.seed),
            counts: TokenCounts::new(&params, prompt),
            params,
            suppressed,
            min_tokens,
            num_output: 0,
        }
    }

    /// Draws the next token from `logits` (`[vocab_size]`, overwritten).
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<SampledToken, SamplingError> {
        check(logits)?;
        // Of the model's own distribution, before anything below changes it.
        let raw = self.params.logprobs.map(|_| logits.to_vec());
        self.apply_bias(logits);
        self.counts.apply(&self.params, logits);
        let token_id = self.draw(logits)?;
        self.counts.push(token_id);
        self.num_output += 1;
        let logprobs = match (raw, self.params.logprobs) {
            (Some(raw), Some(top)) => Some(TokenLogprobs::of(&raw, token_id, usize::from(top))),
            _ => None,
        };
        Ok(SampledToken { token_id, logprobs })
    }

    fn apply_bias(&self, logits: &mut [f32]) {
        for (token, bias) in &self.params.logit_bias {
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit += bias;
            }
        }
        if self.num_output < self.min_tokens {
            for token in &self.suppressed {
                if let Some(logit) = logits.get_mut(*token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }

    fn draw(&mut self, logits: &[f32]) -> Result<u32, SamplingError> {
        let best = argmax(logits);
        if logits[best as usize] == f32::NEG_INFINITY {
            return Err(SamplingError::BadLogits("every token is excluded".to_owned()));
        }
        if self.params.temperature < GREEDY_TEMPERATURE {
            return Ok(best);
        }
        let candidates = filters::candidates(&self.params, logits, logits[best as usize]);
        let total: f64 = candidates.iter().map(|candidate| f64::from(candidate.weight)).sum();
        let mut left = self.rng.random::<f64>() * total;
        for candidate in &candidates {
            left -= f64::from(candidate.weight);
            if left < 0.0 {
                return Ok(candidate.token_id);
            }
        }
        // Rounding may leave a crumb behind the last candidate.
        Ok(candidates.last().map_or(best, |candidate| candidate.token_id))
    }
}

fn check(logits: &[f32]) -> Result<(), SamplingError> {
    if let Some(index) = logits.iter().position(|logit| logit.is_nan()) {
        return Err(SamplingError::BadLogits(format!("logit {index} is NaN")));
    }
    if logits.iter().all(|logit| *logit == f32::NEG_INFINITY) || logits.contains(&f32::INFINITY) {
        return Err(SamplingError::BadLogits("logits are not finite".to_owned()));
    }
    Ok(())
}

/// The most likely token; of equals the lowest id.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (index, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = index;
        }
    }
    u32::try_from(best).expect("vocabularies are below 2^32")
}

#[cfg(test)]
mod tests;
