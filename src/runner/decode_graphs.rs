//! Graphs of decode steps, which a GPU starts with one call: captured once for each size.
//!
//! A step of few single tokens is cheap to compute and dear to start kernel by kernel. Steps are
//! padded to a few sizes; the tokens that pad them write nothing, and their logits are dropped. All
//! that a captured step reads of its plan lies in one buffer, which is overwritten for each replay.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use candle_core::{DType, Device, Result, Tensor};

use super::batch::narrow;
use crate::layers::forward::{
    BLOCK_SIZE, CudaGraph, ForwardBatch, ForwardContext, NO_SLOT, StartedDraws, Step, StepSizes,
    StepTensors,
};
use crate::models::CausalLm;

/// Most tokens of a captured step: larger ones take so long that starting them doesn't matter.
const MOST_TOKENS: usize = 256;
/// Fewest columns of a captured step's block table.
const LEAST_BLOCKS: usize = 8;

/// The captured decode steps of one model.
#[derive(Default)]
pub(super) struct DecodeGraphs {
    steps: HashMap<StepSizes, CapturedStep>,
    /// A step couldn't be captured; no other will be.
    given_up: bool,
    /// The last step, if a graph computed it.
    last: Option<ForwardBatch>,
    ahead: Option<StepAhead>,
}

/// A step that was started before it was asked for.
struct StepAhead {
    sizes: StepSizes,
    /// The step's plan; its token ids stand once they are sampled.
    batch: ForwardBatch,
    tokens_known: bool,
}

/// A captured step of one size.
struct CapturedStep {
    /// The buffer on the device that a step's plan is written to.
    plan: Tensor,
    /// A placeholder batch of this size, whose tensors are parts of `plan`.
    batch: ForwardBatch,
    /// `[tokens, vocab_size]`
    logits: Tensor,
    graph: CudaGraph,
}

/// The size that a step is padded to, if it can be captured: single tokens, all with logits and with
/// nothing else.
fn size_of(batch: &ForwardBatch) -> Option<StepSizes> {
    let step = &batch.step;
    let tokens = step.input_ids.len();
    let singles = step.context_lens.len() == tokens
        && step.cu_seqlens_q.windows(2).all(|rows| rows[1] - rows[0] == 1);
    let seeing = !batch.pictures.is_empty() || !step.rope_positions.is_empty();
    let plain = batch.hidden_rows.is_empty() && batch.adapters.is_empty() && !seeing;
    if !singles || !plain || batch.logits_rows.len() != tokens || tokens > MOST_TOKENS {
        return None;
    }
    let blocks = step.sizes().blocks.next_power_of_two().max(LEAST_BLOCKS);
    let padded = match tokens {
        0..=4 => tokens.next_power_of_two(),
        5..=64 => tokens.next_multiple_of(8),
        _ => tokens.next_multiple_of(32),
    };
    Some(StepSizes { tokens: padded, seqs: padded, blocks })
}

impl DecodeGraphs {
    /// Logits of the step, `[tokens, vocab_size]`, if it can be captured; valid until the next step.
    pub(super) fn forward(
        &mut self,
        model: &dyn CausalLm,
        context: &ForwardContext<'_>,
        batch: &ForwardBatch,
    ) -> Result<Option<Tensor>> {
        let ahead = self.ahead.take();
        self.last = None;
        let Some(sizes) = size_of(batch).filter(|_| !self.given_up) else { return Ok(None) };
        if let Some(ahead) = ahead
            && let Some(rows) = ahead.rows_of(batch)
        {
            tracing::trace!(rows = rows.len(), "this step was run ahead");
            self.last = Some(batch.clone());
            return self.steps[&ahead.sizes].logits_of(&rows).map(Some);
        }
        if let Entry::Vacant(entry) = self.steps.entry(sizes) {
            match CapturedStep::new(model, context, sizes) {
                Ok(step) => drop(entry.insert(step)),
                Err(error) => {
                    tracing::warn!(
                        "decode steps are not captured, which makes them slower: {error}"
                    );
                    self.given_up = true;
                    self.steps.clear();
                    return Ok(None);
                }
            }
        }
        let step = &self.steps[&sizes];
        batch.step.overwrite(&step.plan, sizes)?;
        step.graph.launch(|| step.compute(model, context))?;
        self.last = Some(batch.clone());
        step.logits_of(&batch.logits_rows).map(Some)
    }

    /// Starts the step after the last one, with the tokens that are being sampled from its logits: the
    /// device has work until the host knows them. Nothing happens if the next token of a sequence has
    /// no slot or no step of that size was captured.
    pub(super) fn run_ahead(
        &mut self,
        model: &dyn CausalLm,
        context: &ForwardContext<'_>,
        draws: &StartedDraws,
    ) -> Result<()> {
        let Some(last) = self.last.take() else { return Ok(()) };
        if !draws.rows().eq(last.logits_rows.iter().copied()) {
            return Ok(());
        }
        let Some(batch) = next(last) else { return Ok(()) };
        let sizes = size_of(&batch).filter(|sizes| self.steps.contains_key(sizes));
        let Some(sizes) = sizes else { return Ok(()) };
        let step = &self.steps[&sizes];
        batch.step.overwrite(&step.plan, sizes)?;
        draws.put_tokens(&step.plan)?;
        step.graph.launch(|| step.compute(model, context))?;
        self.ahead = Some(StepAhead { sizes, batch, tokens_known: false });
        Ok(())
    }

    /// Tells the tokens that were sampled, in the order of rows; `None` if one of them failed.
    pub(super) fn tokens_sampled(&mut self, token_ids: Option<Vec<u32>>) {
        match (&mut self.ahead, token_ids) {
            (Some(ahead), Some(ids)) if ids.len() == ahead.batch.step.input_ids.len() => {
                ahead.batch.step.input_ids = ids;
                ahead.tokens_known = true;
            }
            _ => self.ahead = None,
        }
    }
}

/// The step after one of single tokens: each sequence's next token. `None` if one has no slot.
fn next(mut batch: ForwardBatch) -> Option<ForwardBatch> {
    let slots = std::mem::take(&mut batch.next_slots);
    let step = &mut batch.step;
    if slots.len() != step.input_ids.len() || slots.contains(&NO_SLOT) {
        return None;
    }
    for numbers in [&mut step.positions, &mut step.context_lens, &mut step.sequence_lens] {
        for number in numbers {
            *number += 1;
        }
    }
    for (table, slot) in step.block_tables.iter_mut().zip(&slots) {
        if (*slot as usize).is_multiple_of(BLOCK_SIZE) {
            table.push(slot / narrow(BLOCK_SIZE));
        }
    }
    step.slots = slots;
    Some(batch)
}

impl StepAhead {
    /// The rows of this step that are the rows of `batch`, if it has all of them.
    fn rows_of(&self, batch: &ForwardBatch) -> Option<Vec<u32>> {
        if !self.tokens_known {
            return None;
        }
        let (own, batch) = (&self.batch.step, &batch.step);
        let mut rows = 0..own.input_ids.len();
        let found = (0..batch.input_ids.len()).map(|i| {
            let row = rows.find(|row| {
                own.slots[*row] == batch.slots[i] && own.positions[*row] == batch.positions[i]
            })?;
            let same = own.input_ids[row] == batch.input_ids[i]
                && own.sequence_lens[row] == batch.sequence_lens[i]
                && own.block_tables[row] == batch.block_tables[i];
            same.then(|| narrow(row))
        });
        found.collect()
    }
}

impl CapturedStep {
    fn new(model: &dyn CausalLm, context: &ForwardContext<'_>, sizes: StepSizes) -> Result<Self> {
        let StepSizes { tokens, blocks, .. } = sizes;
        let device: &Device = context.device;
        let rows: Vec<u32> = (0..=narrow(tokens)).collect();
        let plan = Tensor::zeros(sizes.len(), DType::U32, device)?;
        let on_device = StepTensors::in_buffer(&plan, sizes, blocks * BLOCK_SIZE)?;
        let step = Step {
            input_ids: vec![0; tokens],
            positions: vec![0; tokens],
            slots: vec![NO_SLOT; tokens],
            block_tables: vec![vec![0]; tokens],
            context_lens: vec![1; tokens],
            sequence_lens: vec![1; tokens],
            state_slots: vec![NO_SLOT; tokens],
            cu_seqlens_q: rows.clone(),
            ..Step::default()
        };
        step.overwrite(&plan, sizes)?;
        let step = step.with_tensors(on_device);
        let logits_rows = rows[..tokens].to_vec();
        let batch = ForwardBatch { step, logits_rows, ..ForwardBatch::default() };
        let logits = Tensor::zeros((tokens, model.vocab_size()), DType::F32, device)?;
        let compute = || compute(model, context, &batch, &logits);
        let graph = CudaGraph::capture(device, compute)?;
        Ok(Self { plan, batch, logits, graph })
    }

    /// Some rows of the logits that the last replay computed.
    fn logits_of(&self, rows: &[u32]) -> Result<Tensor> {
        let in_order = rows.iter().zip(0..).all(|(row, i)| *row == i);
        if !in_order {
            return self.logits.index_select(&Tensor::new(rows, self.logits.device())?, 0);
        }
        let logits = self.logits.narrow(0, 0, rows.len())?;
        // The reader takes memory of the host away from its tensor.
        if logits.device().is_cpu() { logits.force_contiguous() } else { Ok(logits) }
    }

    fn compute(&self, model: &dyn CausalLm, context: &ForwardContext<'_>) -> Result<()> {
        compute(model, context, &self.batch, &self.logits)
    }
}

/// Runs the model and writes its logits to `logits`.
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
        let mut step = Step { cu_seqlens_q: vec![0], ..Step::default() };
        let mut logits_rows = Vec::new();
        for (count, blocks) in of {
            let end = step.cu_seqlens_q[step.cu_seqlens_q.len() - 1] + count;
            step.input_ids.resize(end as usize, 7);
            step.cu_seqlens_q.push(end);
            step.context_lens.push(1);
            step.block_tables.push(vec![0; *blocks]);
            logits_rows.push(end - 1);
        }
        ForwardBatch { step, logits_rows, ..ForwardBatch::default() }
    }

    fn size(of: &[(u32, usize)]) -> Option<(usize, usize)> {
        size_of(&batch(of)).map(|sizes| (sizes.tokens, sizes.blocks))
    }

    #[test]
    fn steps_of_single_tokens_are_padded_and_others_are_not_captured() {
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

    #[test]
    fn the_step_ahead_is_the_next_token_of_each_and_is_found_by_its_rows() {
        let mut last = batch(&[(1, 1), (1, 2), (1, 1)]);
        last.step.positions = vec![31, 40, 4];
        last.step.slots = vec![31, 72, 132];
        last.step.block_tables = vec![vec![0], vec![1, 2], vec![4]];
        last.step.context_lens = vec![32, 41, 5];
        last.step.sequence_lens = vec![32, 41, 5];
        last.next_slots = vec![NO_SLOT, 73, 133];
        assert_eq!(next(last.clone()), None);
        last.next_slots[0] = 3 * 32;
        let ahead = next(last).unwrap();
        let step = &ahead.step;
        assert_eq!((&step.positions, &step.slots), (&vec![32, 41, 5], &vec![96, 73, 133]));
        assert_eq!(step.block_tables, [vec![0, 3], vec![1, 2], vec![4]]);
        assert_eq!((&step.context_lens, &step.sequence_lens), (&vec![33, 42, 6], &vec![33, 42, 6]));

        // The second sequence has ended.
        let mut asked = ahead.clone();
        let Step { positions, slots, sequence_lens, .. } = &mut asked.step;
        for numbers in [positions, slots, sequence_lens] {
            numbers.remove(1);
        }
        asked.step.block_tables.remove(1);
        asked.step.input_ids = vec![50, 52];
        let sizes = size_of(&ahead).unwrap();
        let ahead = Some(StepAhead { sizes, batch: ahead, tokens_known: false });
        let mut graphs = DecodeGraphs { ahead, ..DecodeGraphs::default() };
        assert_eq!(graphs.ahead.as_ref().unwrap().rows_of(&asked), None);
        graphs.tokens_sampled(Some(vec![50, 51, 52]));
        let ahead = graphs.ahead.as_mut().unwrap();
        assert_eq!(ahead.rows_of(&asked), Some(vec![0, 2]));
        asked.step.input_ids[1] = 51;
        assert_eq!(ahead.rows_of(&asked), None);
        graphs.tokens_sampled(None);
        assert!(graphs.ahead.is_none());
    }
}
