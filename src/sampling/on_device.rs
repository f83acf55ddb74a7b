//! Draws that are made where the logits are: what a sequence's state asks for, and what it takes
//! from the result. What is drawn equals a draw on the host, to the bit.

use rand::RngExt;

use super::error::SamplingError;
use super::logprobs::TokenLogprobs;
use super::params::SCALARS;
use super::{GREEDY_TEMPERATURE, SampledToken, SamplerState};
use crate::kernels::sample::{DeviceLogits, Draw, Drawn, StartedDraws};

/// Most likely tokens that a device lists.
const MOST_ON_DEVICE: u32 = 20;

impl SamplerState {
    /// Whether a device can make the next draw. What few requests use stays on the host.
    pub fn samples_on_device(&self) -> bool {
        let mut on_host = SCALARS.iter().filter(|scalar| !scalar.on_device);
        let params = &self.params;
        let plain = self.dry.is_none()
            && self.bad_words.is_none()
            && params.allowed_token_ids.is_none()
            && params.logprob_token_ids.is_none()
            && params.logprobs.is_none_or(|top| top <= MOST_ON_DEVICE);
        plain && on_host.all(|scalar| scalar.is_neutral(&self.params))
    }

    /// What is asked of row `row`.
    fn ask(&mut self, logits: &DeviceLogits, row: u32) -> Result<Draw, SamplingError> {
        let mut biases: Vec<(u32, f32)> =
            self.params.logit_bias.iter().map(|(token, bias)| (*token, *bias)).collect();
        if self.suppresses() {
            biases.extend(self.suppressed.iter().map(|token| (*token, f32::NEG_INFINITY)));
        }
        let (required, mask) = match &mut self.constraint {
            Some(constraint) => constraint.allowed()?,
            None => (None, None),
        };
        let counts = self.counts.ask(logits);
        let counts = counts.map_err(|error| SamplingError::Device(error.to_string()))?;
        let params = &self.params;
        let greedy = params.temperature < GREEDY_TEMPERATURE;
        let position = if greedy { 0.0 } else { self.rng.random() };
        Ok(Draw {
            row,
            position,
            temperature: params.temperature,
            top_p: params.top_p,
            min_p: params.min_p,
            top_k: params.top_k,
            repetition_penalty: params.repetition_penalty,
            frequency_penalty: params.frequency_penalty,
            presence_penalty: params.presence_penalty,
            biases,
            counts,
            mask,
            required,
            top: params.logprobs,
        })
    }

    /// Takes what was drawn.
    fn accept(&mut self, drawn: Drawn) -> Result<SampledToken, SamplingError> {
        let bad = |why: String| Err(SamplingError::BadLogits(why));
        let (token_id, logprobs) = match drawn {
            Drawn::Token { token_id, logprobs } => (token_id, logprobs),
            Drawn::Nan(index) => return bad(format!("logit {index} is NaN")),
            Drawn::NotFinite => return bad("logits are not finite".to_owned()),
            Drawn::NoneLeft => return bad("every token is excluded".to_owned()),
        };
        self.count(token_id);
        let forced = self.advance(token_id)?;
        let logprobs = logprobs.map(|own| TokenLogprobs {
            token_id,
            logprob: own.logprob,
            rank: own.rank,
            top: own.top,
        });
        Ok(SampledToken { token_id, logprobs, forced })
    }
}

/// Draws the next token of several sequences, each from a row of `logits` of its own. `meanwhile` is
/// called when all draws are started and before anybody waits for them.
pub fn sample_rows_on_device(
    logits: &DeviceLogits,
    rows: Vec<(&mut SamplerState, u32)>,
    meanwhile: impl FnOnce(&StartedDraws),
) -> Vec<Result<SampledToken, SamplingError>> {
    let mut asked = Vec::with_capacity(rows.len());
    let mut states = Vec::with_capacity(rows.len());
    for (state, row) in rows {
        let ready = state.ask(logits, row).map(|draw| asked.push(draw));
        states.push((state, ready));
    }
    let draw = |asked: Vec<Draw>| {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let started = logits.start(asked)?;
        meanwhile(&started);
        started.wait()
    };
    let results: candle_core::Result<_> = draw(asked);
    let mut results = results.map(Vec::into_iter).map_err(|error| error.to_string());
    let each = states.into_iter().map(|(state, ready)| {
        if let Err(error) = ready {
            state.counts.forget_device();
            return Err(error);
        }
        match &mut results {
            Ok(results) => state.accept(results.next().expect("one for each that asked")),
            Err(error) => {
                state.counts.forget_device();
                Err(SamplingError::Device(error.clone()))
            }
        }
    });
    each.collect()
}
