//! Decode steps that a GPU starts with one call: recorded once for each size.
//!
//! A step of few single tokens is cheap to compute and dear to start kernel by kernel. Steps are
//! rounded up to a few sizes; the tokens that are added write nothing, and what is computed of
//! them is dropped. All a recorded step reads of its plan lies in one buffer, which is overwritten.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor};

use crate::layers::forward::{
    BLOCK_SIZE, ForwardBatch, ForwardContext, NO_SLOT, OnDevice, Recording, StepSizes, StepTensors,
};
use crate::models::CausalLm;

/// Larger steps take so long that starting them doesn't matter.
const MOST_TOKENS: usize = 256;
/// Blocks of a sequence that there is room for at least.
const LEAST_BLOCKS: usize = 8;

/// The recorded steps of one model.
#[derive(Default)]
pub(super) struct Recorded {
    steps: HashMap<StepSizes, Step>,
    /// A step couldn't be recorded; no other will.
    given_up: bool,
}

/// One size.
struct Step {
    /// Where the plan is written to.
    plan: Tensor,
    /// As large, of tokens at their start: what stands for the plan on the host.
    batch: ForwardBatch,
    /// `[tokens, vocab_size]`
    logits: Tensor,
    recording: Recording,
}

/// The size that a step is rounded up to, if it can be recorded: single tokens, of all of which
/// logits are wanted, and nothing but those.
fn size_of(batch: &ForwardBatch) -> Option<StepSizes> {
    let tokens = batch.input_ids.len();
    let singles = batch.context_lens.len() == tokens
        && batch.cu_seqlens_q.windows(2).all(|rows| rows[1] - rows[0] == 1);
    let plain = batch.hidden_rows.is_empty() && batch.adapters.is_empty();
    if !singles || !plain || batch.logits_rows.len() != tokens || tokens > MOST_TOKENS {
        return None;
    }
    let blocks = batch.plan().sizes().blocks.next_power_of_two().max(LEAST_BLOCKS);
    let rounded = match tokens {
        0..=4 => tokens.next_power_of_two(),
        5..=64 => tokens.next_multiple_of(8),
        _ => tokens.next_multiple_of(32),
    };
    Some(StepSizes { tokens: rounded, seqs: rounded, blocks })
}

impl Recorded {
    /// Logits of the step, `[tokens, vocab_size]`, if it is of a kind that is recorded. They stay
    /// until the next step.
    pub(super) fn forward(
        &mut self,
        model: &dyn CausalLm,
        context: &ForwardContext<'_>,
        batch: &ForwardBatch,
    ) -> Result<Option<Tensor>> {
        let Some(sizes) = size_of(batch).filter(|_| !self.given_up) else { return Ok(None) };
        if let Entry::Vacant(entry) = self.steps.entry(sizes) {
            match Step::new(model, context, sizes) {
                Ok(step) => drop(entry.insert(step)),
                Err(error) => {
                    tracing::warn!(
                        "decode steps are not recorded, which makes them slower: {error}"
                    );
                    self.given_up = true;
                    self.steps.clear();
                    return Ok(None);
                }
            }
        }
        let step = &self.steps[&sizes];
        batch.plan().overwrite(&step.plan, sizes)?;
        step.recording.replay(|| step.compute(model, context))?;
        let logits = step.logits.narrow(0, 0, batch.input_ids.len())?;
        // Memory of the host is taken over by whoever reads it next.
        if logits.device().is_cpu() {
            logits.force_contiguous().map(Some)
        } else {
            Ok(Some(logits))
        }
    }
}

impl Step {
    fn new(model: &dyn CausalLm, context: &ForwardContext<'_>, sizes: StepSizes) -> Result<Self> {
        let StepSizes { tokens, blocks, .. } = sizes;
        let device: &Device = context.device;
        let rows =
            (0..=u32::try_from(tokens).map_err(candle_core::Error::wrap)?).collect::<Vec<_>>();
        let plan = Tensor::zeros(sizes.len(), DType::U32, device)?;
        let on_device = StepTensors::in_buffer(&plan, sizes, blocks * BLOCK_SIZE)?;
        let batch = ForwardBatch {
            input_ids: vec![0; tokens],
            positions: vec![0; tokens],
            slot_mapping: vec![NO_SLOT; tokens],
            block_tables: vec![vec![0]; tokens],
            context_lens: vec![1; tokens],
            sequence_lens: vec![1; tokens],
            state_slots: vec![0; tokens],
            logits_rows: rows[..tokens].to_vec(),
            cu_seqlens_q: rows,
            on_device: OnDevice(Some(Arc::new(on_device))),
            ..ForwardBatch::default()
        };
        batch.plan().overwrite(&plan, sizes)?;
        let logits = Tensor::zeros((tokens, model.vocab_size()), DType::F32, device)?;
        let compute = || compute(model, context, &batch, &logits);
        let recording = Recording::new(device, compute)?;
        Ok(Self { plan, batch, logits, recording })
    }

    fn compute(&self, model: &dyn CausalLm, context: &ForwardContext<'_>) -> Result<()> {
        compute(model, context, &self.batch, &self.logits)
    }
}

/// Runs the model and puts its logits where they are looked for.
fn compute(
    model: &dyn CausalLm,
    context: &ForwardContext<'_>,
    batch: &ForwardBatch,
    logits: &Tensor,
) -> Result<()> {
    logits.slice_set(&model.forward(context, batch)?.logits.contiguous()?, 0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequences with these many tokens in this step and blocks.
    fn batch(of: &[(u32, usize)]) -> ForwardBatch {
        let mut batch = ForwardBatch { cu_seqlens_q: vec![0], ..ForwardBatch::default() };
        for (count, blocks) in of {
            let end = batch.cu_seqlens_q[batch.cu_seqlens_q.len() - 1] + count;
            batch.input_ids.resize(end as usize, 7);
            batch.cu_seqlens_q.push(end);
            batch.context_lens.push(1);
            batch.block_tables.push(vec![0; *blocks]);
            batch.logits_rows.push(end - 1);
        }
        batch
    }

    fn size(of: &[(u32, usize)]) -> Option<(usize, usize)> {
        size_of(&batch(of)).map(|sizes| (sizes.tokens, sizes.blocks))
    }

    #[test]
    fn steps_of_single_tokens_are_rounded_up_and_others_are_not_recorded() {
        assert_eq!(size(&[(1, 1)]), Some((1, 8)));
        assert_eq!(size(&[(1, 9); 3]), Some((4, 16)));
        assert_eq!(size(&[(1, 16); 9]), Some((16, 16)));
        assert_eq!(size(&[(1, 1); 65]), Some((96, 8)));
        assert_eq!(size(&[(1, 1); 256]), Some((256, 8)));
        assert_eq!(size(&[(1, 1); 257]), None);
        assert_eq!(size(&[(1, 1), (2, 1)]), None);
        let pooled = ForwardBatch { hidden_rows: vec![0], ..batch(&[(1, 1)]) };
        assert_eq!(size_of(&pooled), None);
        let silent = ForwardBatch { logits_rows: vec![], ..batch(&[(1, 1)]) };
        assert_eq!(size_of(&silent), None);
    }
}
