//! Graphs of decode steps, which a GPU starts with one call: captured once for each size.
//!
//! A step of few single tokens is cheap to compute and dear to start kernel by kernel. Steps are
//! padded to a few sizes; the tokens that pad them write nothing, and their logits are dropped. All
//! that a captured step reads of its plan lies in one buffer, which is overwritten for each replay.
//!
//! All sizes are captured before the engine serves, and none later: whatever another thread does on
//! the device meanwhile, such as moving an adapter there, would become a part of the graph.

mod captured_step;

use std::collections::HashMap;

use candle_core::Result;
use captured_step::{CapturedStep, Outputs};
use serde::{Deserialize, Serialize};

use super::batch::narrow;
use super::hidden::HeadInput;
use super::single_tokens::{is_plain, single_tokens};
use crate::layers::forward::{
    BLOCK_SIZE, ForwardBatch, ForwardContext, NO_SLOT, StartedDraws, StepSizes,
};
use crate::models::{CausalLm, ForwardOutput};

/// Most tokens of a captured step: larger ones take so long that starting them doesn't matter.
const MOST_TOKENS: usize = 256;
/// Fewest columns of a captured step's block table: one span of attention.
const LEAST_BLOCKS: usize = 8;
/// Columns of the next wider block table.
const WIDER: usize = 8;

/// The captured decode steps of one model.
#[derive(Default)]
pub(super) struct DecodeGraphs {
    steps: HashMap<StepSizes, CapturedStep>,
    /// What the last step computed, of whatever size.
    outputs: Option<Outputs>,
    /// What steps give besides logits.
    told: HeadInput,
    /// The last step, if a graph computed it.
    last: Option<ForwardBatch>,
    ahead: Option<StepAhead>,
    /// Whether other ranks compute the same steps.
    shared: bool,
}

/// The largest step that is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecodeBounds {
    /// Most tokens of a step: one of each sequence, and drafts; above 256 steps are not captured.
    pub tokens: usize,
    /// Most blocks of a sequence.
    pub blocks: usize,
}

/// A step that was started before it was asked for.
struct StepAhead {
    sizes: StepSizes,
    /// The step's plan; its token ids stand once they are sampled.
    batch: ForwardBatch,
    tokens_known: bool,
}

/// The number of single tokens that a step of `tokens` is padded to.
fn padded(tokens: usize) -> usize {
    match tokens {
        0..=4 => tokens.next_power_of_two(),
        5..=64 => tokens.next_multiple_of(8),
        _ => tokens.next_multiple_of(32),
    }
}

impl DecodeBounds {
    /// The sizes that are captured, the largest first: what it allocates suffices for the others.
    fn sizes(self) -> Vec<StepSizes> {
        let mut tokens: Vec<usize> = (1..=self.tokens.min(MOST_TOKENS)).map(padded).collect();
        tokens.dedup();
        let longest = self.blocks.max(LEAST_BLOCKS);
        let narrower = std::iter::successors(Some(LEAST_BLOCKS), |blocks| Some(blocks * WIDER));
        let mut widths: Vec<usize> = narrower.take_while(|blocks| *blocks < longest).collect();
        widths.push(longest);
        let of = |blocks: usize| {
            let size = move |tokens: &usize| StepSizes { tokens: *tokens, seqs: *tokens, blocks };
            tokens.iter().rev().map(size)
        };
        widths.into_iter().rev().flat_map(of).collect()
    }

    /// The largest of these sizes.
    pub(super) fn largest(self) -> Option<StepSizes> {
        self.sizes().first().copied()
    }
}

/// The tokens and blocks that a step needs, if it can be a captured one: single tokens, all with logits
/// and with nothing else but what a head is `told`.
fn needs(batch: &ForwardBatch, told: &HeadInput) -> Option<StepSizes> {
    let step = &batch.step;
    let tokens = step.input_ids.len();
    let singles = step.context_lens.len() == tokens
        && step.cu_seqlens_q.windows(2).all(|rows| rows[1] - rows[0] == 1);
    let plain = is_plain(batch, told) && batch.logits_rows.len() == tokens;
    if !singles || !plain || tokens > MOST_TOKENS {
        return None;
    }
    Some(StepSizes { tokens: padded(tokens), seqs: padded(tokens), blocks: step.sizes().blocks })
}

impl DecodeGraphs {
    /// None yet; `shared` says that other ranks compute the same steps.
    pub(super) fn new(shared: bool) -> Self {
        Self { shared, ..Self::default() }
    }

    /// Captures all sizes up to the largest, which give what a head is `told` besides. A size that can't
    /// be captured is left to be computed kernel by kernel. Gives the tokens and blocks of those that were.
    ///
    /// # Errors
    ///
    /// No memory for the logits of a step; or a step fails that other ranks compute as well, who would wait
    /// for this one.
    pub(super) fn capture(
        &mut self,
        model: &dyn CausalLm,
        context: &ForwardContext<'_>,
        bounds: DecodeBounds,
        told: &HeadInput,
    ) -> Result<Vec<(usize, usize)>> {
        let sizes = bounds.sizes();
        let Some(most) = sizes.iter().map(|sizes| sizes.tokens).max() else { return Ok(vec![]) };
        let outputs = Outputs::new(model, most, told, context.device)?;
        let (mut captured, mut failed) = (Vec::new(), Vec::new());
        for sizes in &sizes {
            let computed = CapturedStep::new(model, context, *sizes, &outputs, told);
            match if self.shared { computed? } else { computed.flatten() } {
                Ok(step) => {
                    self.steps.insert(*sizes, step);
                    captured.push((sizes.tokens, sizes.blocks));
                }
                Err(error) => failed.push((*sizes, first_line(&error))),
            }
        }
        (self.outputs, self.told) = (Some(outputs), told.clone());
        tracing::info!(sizes = self.steps.len(), "decode steps captured");
        if let Some((StepSizes { tokens, blocks, .. }, error)) = failed.first() {
            tracing::warn!(
                "{} of {} sizes of decode steps are not captured, which makes them slower; \
                 {tokens} tokens with {blocks} blocks: {error}",
                failed.len(),
                sizes.len()
            );
        }
        Ok(captured)
    }

    /// The smallest captured size that holds the step.
    fn size_of(&self, batch: &ForwardBatch) -> Option<StepSizes> {
        let needed = needs(batch, &self.told)?;
        let holds =
            |sizes: &&StepSizes| sizes.tokens == needed.tokens && sizes.blocks >= needed.blocks;
        self.steps.keys().filter(holds).min_by_key(|sizes| sizes.blocks).copied()
    }

    /// What the step gives, if it was captured; valid until the next step. Tokens that verify drafts are
    /// rows like others, unless the model has states.
    pub(super) fn forward(
        &mut self,
        model: &dyn CausalLm,
        context: &ForwardContext<'_>,
        batch: &ForwardBatch,
    ) -> Result<Option<ForwardOutput>> {
        let ahead = self.ahead.take();
        self.last = None;
        let single =
            if context.states.is_empty() { single_tokens(batch, &self.told) } else { None };
        let batch = single.as_ref().unwrap_or(batch);
        let Some(sizes) = self.size_of(batch) else { return Ok(None) };
        if let Some(ahead) = ahead
            && let Some(rows) = ahead.rows_of(batch)
        {
            tracing::trace!(rows = rows.len(), "this step was run ahead");
            self.last = Some(batch.clone());
            return self.steps[&ahead.sizes].output(batch, &rows).map(Some);
        }
        let step = &self.steps[&sizes];
        batch.step.overwrite(&step.plan, sizes)?;
        step.graph.launch(|| step.compute(model, context))?;
        self.last = Some(batch.clone());
        step.output(batch, &batch.logits_rows).map(Some)
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
        let Some(sizes) = self.size_of(&batch) else { return Ok(()) };
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

/// Captures the largest step and launches it, so that what memory it takes was taken once.
pub(super) fn rehearse(
    model: &dyn CausalLm,
    context: &ForwardContext<'_>,
    bounds: DecodeBounds,
    told: &HeadInput,
) -> Result<()> {
    let Some(largest) = bounds.largest() else { return Ok(()) };
    let outputs = Outputs::new(model, largest.tokens, told, context.device)?;
    // Where it can't be captured, it was computed all the same.
    if let Ok(Ok(step)) = CapturedStep::new(model, context, largest, &outputs, told) {
        step.graph.launch(|| step.compute(model, context))?;
    }
    context.device.synchronize()
}

/// The message of an error, without the backtrace that may follow.
fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
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

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::layers::forward::{KvShape, Step};

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
        needs(&batch(of), &HeadInput::Nothing).map(|sizes| (sizes.tokens, sizes.blocks))
    }

    #[test]
    fn steps_of_single_tokens_are_padded_and_others_are_not_captured() {
        assert_eq!(size(&[(1, 1)]), Some((1, 1)));
        assert_eq!(size(&[(1, 9); 3]), Some((4, 9)));
        assert_eq!(size(&[(1, 16); 9]), Some((16, 16)));
        assert_eq!(size(&[(1, 1); 65]), Some((96, 1)));
        assert_eq!(size(&[(1, 1); 256]), Some((256, 1)));
        assert_eq!(size(&[(1, 1); 257]), None);
        assert_eq!(size(&[(1, 1), (2, 1)]), None);
        let pooled = ForwardBatch { hidden_rows: vec![0], ..batch(&[(1, 1)]) };
        assert_eq!(needs(&pooled, &HeadInput::Nothing), None);
        assert!(needs(&pooled, &HeadInput::Hidden).is_some(), "a head is told");
        let silent = ForwardBatch { logits_rows: vec![], ..batch(&[(1, 1)]) };
        assert_eq!(needs(&silent, &HeadInput::Nothing), None);
    }

    /// However long contexts are, there are a few sizes, and every step of single tokens has one.
    #[test]
    fn sizes_are_few_and_hold_every_step() {
        let sizes = |tokens, blocks| DecodeBounds { tokens, blocks }.sizes();
        let pairs = |seqs, blocks| -> Vec<_> {
            sizes(seqs, blocks).iter().map(|size| (size.tokens, size.blocks)).collect()
        };
        assert_eq!(pairs(3, 2), [(4, 8), (2, 8), (1, 8)]);
        assert_eq!(pairs(1, 100), [(1, 100), (1, 64), (1, 8)]);
        assert_eq!(pairs(0, 100), []);
        assert_eq!(sizes(1000, 4096).len(), 17 * 4);
        for seqs in [1, 7, 64, 300] {
            let all = pairs(seqs, 4096);
            assert_eq!(all[0].0, padded(seqs.min(256)), "the largest comes first");
            for tokens in 1..=seqs.min(256) {
                assert!(all.contains(&(padded(tokens), 4096)), "{tokens} of {seqs}");
            }
        }
    }

    /// Gives each row its token's id as its logits, and fails for steps of some sizes.
    struct Echo {
        fails_at: usize,
    }

    impl CausalLm for Echo {
        fn forward(&self, _: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
            let ids = &batch.step.tensors().expect("captured steps are read there").input_ids;
            if ids.elem_count() == self.fails_at {
                candle_core::bail!("this size can't be captured");
            }
            let logits = ids.to_dtype(DType::F32)?.unsqueeze(1)?.repeat((1, self.vocab_size()))?;
            Ok(ForwardOutput { logits, hidden: None, tapped: None })
        }

        fn kv_shape(&self) -> KvShape {
            KvShape::default()
        }

        fn vocab_size(&self) -> usize {
            3
        }

        fn hidden_size(&self) -> usize {
            1
        }

        fn max_position_embeddings(&self) -> usize {
            1024
        }
    }

    /// A step of so many single tokens, which can be written to a buffer.
    fn decode(tokens: usize) -> ForwardBatch {
        let mut batch = batch(&vec![(1, 1); tokens]);
        let step = &mut batch.step;
        step.input_ids = (10..).take(tokens).collect();
        step.positions.resize(tokens, 0);
        step.slots.resize(tokens, 0);
        step.sequence_lens.resize(tokens, 1);
        step.state_slots.resize(tokens, 1);
        batch
    }

    #[test]
    fn a_size_that_can_not_be_captured_leaves_the_others_and_all_share_their_logits() {
        let (model, device) = (Echo { fails_at: 2 }, Device::Cpu);
        let context = ForwardContext { device: &device, kv: &[], states: &[], interruption: None };
        let mut graphs = DecodeGraphs::default();
        let step = decode(1);
        assert!(graphs.forward(&model, &context, &step).unwrap().is_none(), "none is captured yet");
        let bounds = DecodeBounds { tokens: 4, blocks: 1 };
        graphs.capture(&model, &context, bounds, &HeadInput::Nothing).unwrap();
        let mut forward = |tokens: usize| {
            let output = graphs.forward(&model, &context, &decode(tokens)).unwrap();
            output.map(|output| output.logits.to_vec2::<f32>().unwrap())
        };
        assert_eq!(forward(1), Some(vec![vec![10.0; 3]]));
        assert_eq!(forward(2), None);
        let three = [10.0, 11.0, 12.0].map(|id| vec![id; 3]);
        assert_eq!(forward(3), Some(three.to_vec()));
        assert_eq!(forward(5), None, "no size is captured later");
        let shared = graphs.outputs.as_ref().unwrap();
        assert_eq!(shared.logits.dims(), [4, 3]);
        for step in graphs.steps.values() {
            assert_eq!(step.outputs.logits.dims(), [step.batch.logits_rows.len(), 3]);
        }
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
        let sizes = needs(&ahead, &HeadInput::Nothing).unwrap();
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
