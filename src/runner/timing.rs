//! Steps of a model that no runner has yet, timed.

use std::time::Instant;

use candle_core::{Device, Result, Tensor};

use super::batch::narrow;
use super::kv_tensors;
use super::local::first_steps;
use crate::layers::forward::{
    BLOCK_SIZE, ForwardBatch, ForwardContext, KvFormat, PreviousHidden, Step,
};
use crate::models::CausalLm;

/// Position of single tokens, unless no context is so long.
const POSITION: u32 = 63;
/// Single tokens that are timed.
const TOKENS: u32 = 9;
/// Prompts that are timed at most.
const PROMPTS: u32 = 3;
/// Seconds after which no other prompt is begun.
const PATIENCE: f64 = 1.0;

/// Seconds that steps take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSeconds {
    /// A step with all tokens of a prompt.
    pub prompt: f64,
    /// A step with a single token behind a short context.
    pub token: f64,
}

/// Times steps with a prompt of so many tokens and with single tokens, other ones each time: the medians.
pub(super) fn time_steps(
    model: &dyn CausalLm,
    device: &Device,
    tokens: usize,
    kv_format: KvFormat,
) -> Result<StepSeconds> {
    let shape = model.kv_shape();
    let kv = kv_tensors::allocate(&shape, 1, kv_format, device)?;
    let states = shape.states(1, device)?;
    let context = ForwardContext { device, kv: &kv, states: &states, interruption: None };
    let seconds = |step: Step| -> Result<f64> {
        let batch = batch(model, step, device)?;
        let began = Instant::now();
        model.forward(&context, &*batch.on(device)?)?;
        device.synchronize()?;
        Ok(began.elapsed().as_secs_f64())
    };
    // The first step finds caches and memory as no later one does.
    let position = POSITION.min(narrow(model.max_position_embeddings().max(1) - 1));
    let single = |round| seconds(single_token(ids(1, round, model.vocab_size()), position));
    let mut singles = (0..=TOKENS).map(single).collect::<Result<Vec<_>>>()?;
    singles.remove(0);
    let mut prompts = Vec::new();
    for round in 0..PROMPTS {
        if prompts.iter().sum::<f64>() > PATIENCE {
            break;
        }
        prompts.push(seconds(Step {
            input_ids: ids(tokens, round, model.vocab_size()),
            ..first_steps(&[tokens])?
        })?);
    }
    if prompts.len() > 1 {
        prompts.remove(0);
    }
    Ok(StepSeconds { prompt: median(prompts), token: median(singles) })
}

/// What a step is asked for: the last token's row. A stage that doesn't begin with tokens goes on from
/// random hidden states.
fn batch(model: &dyn CausalLm, step: Step, device: &Device) -> Result<ForwardBatch> {
    let count = step.input_ids.len();
    let last = vec![narrow(count - 1)];
    let previous_hidden = if model.embedding().is_some() {
        None
    } else {
        let hidden = Tensor::randn(0f32, 1.0, (count, model.hidden_size()), device)?;
        Some(PreviousHidden(hidden))
    };
    let (logits_rows, hidden_rows) =
        if model.gives_logits() { (last, Vec::new()) } else { (Vec::new(), last) };
    let wanted = ForwardBatch { logits_rows, hidden_rows, ..ForwardBatch::default() };
    Ok(ForwardBatch { step, previous_hidden, ..wanted })
}

/// Tokens spread over the vocabulary, others in each round.
fn ids(count: usize, round: u32, vocabulary: usize) -> Vec<u32> {
    let vocabulary = narrow(vocabulary.max(1));
    let id = |index: u32| (index + 1).wrapping_mul(2_654_435_761).rotate_left(round) % vocabulary;
    (0..narrow(count)).map(id).collect()
}

/// A step of one token in a sequence whose block table repeats the only block.
fn single_token(input_ids: Vec<u32>, position: u32) -> Step {
    Step {
        input_ids,
        positions: vec![position],
        slots: vec![position % narrow(BLOCK_SIZE)],
        cu_seqlens_q: vec![0, 1],
        context_lens: vec![position + 1],
        sequence_lens: vec![position + 1],
        state_slots: vec![0],
        block_tables: vec![vec![0; (position as usize + 1).div_ceil(BLOCK_SIZE)]],
        ..Step::default()
    }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_of_the_vocabulary_and_others_each_time() {
        let (one, other) = (ids(100, 0, 50), ids(100, 1, 50));
        assert!(one.iter().chain(&other).all(|id| *id < 50));
        assert_ne!(one, other);
        assert_eq!(ids(2, 0, 0), [0, 0]);
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]).to_bits(), 2.0f64.to_bits());
        assert_eq!(median(vec![5.0]).to_bits(), 5.0f64.to_bits());
    }
}
