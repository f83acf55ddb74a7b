//! One process's part of a running model: its weights, its KV cache, the states of its sequences.

use std::cell::RefCell;

use candle_core::{DType, Device, Result, Tensor};

use super::batch::narrow;
use super::cache_sizes::CacheSizes;
use super::decode_graphs::{self, DecodeBounds, DecodeGraphs};
use super::hidden::HeadInput;
use super::kv_tensors;
use crate::layers::forward::{
    BLOCK_SIZE, CudaGraph, ForwardBatch, ForwardContext, Interruption, KvFormat, KvLayer,
    PreviousHidden, StartedDraws, Step, check_device,
};
use crate::layers::group::told_by_devices;
use crate::models::{CausalLm, ForwardOutput};

/// Most tokens of a step that products of quantized weights take one by one, with a workspace of its
/// own.
const MOST_APART: usize = 8;

/// A model on one device, with its KV cache and the states of recurrent layers.
pub(super) struct Local {
    model: Box<dyn CausalLm>,
    device: Device,
    kv: Vec<KvLayer>,
    /// A row for each slot.
    states: Vec<Tensor>,
    /// Snapshots of such rows.
    snapshots: Vec<Tensor>,
    /// Graphs of decode steps, where they are captured.
    decode_graphs: Option<RefCell<DecodeGraphs>>,
}

impl Local {
    /// Takes the model and allocates its caches. `alone` says that there are no other ranks.
    pub(super) fn new(
        model: Box<dyn CausalLm>,
        device: Device,
        sizes: CacheSizes,
        alone: bool,
    ) -> Result<Self> {
        let CacheSizes { num_blocks, kv_format, num_slots, num_snapshots } = sizes;
        let shape = model.kv_shape();
        let kv = kv_tensors::allocate(&shape, num_blocks, kv_format, &device)?;
        let states = shape.states(num_slots, &device)?;
        let snapshots = shape.states(num_snapshots, &device)?;
        let captures = alone || (!model.is_stage() && told_by_devices(&device));
        let captures = captures && CudaGraph::wanted(&device);
        let decode_graphs = captures.then(|| RefCell::new(DecodeGraphs::new(!alone)));
        Ok(Self { model, device, kv, states, snapshots, decode_graphs })
    }

    /// The device of activations.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Captures decode steps up to these bounds, where steps are captured, which give what a head is `told`
    /// besides; gives the tokens and blocks of those that are. The thread that calls this is the one that
    /// computes.
    pub(super) fn capture(
        &self,
        bounds: DecodeBounds,
        told: &HeadInput,
    ) -> Result<Vec<(usize, usize)>> {
        let Some(graphs) = &self.decode_graphs else { return Ok(vec![]) };
        graphs.borrow_mut().capture(self.model.as_ref(), &self.context(), bounds, told)
    }

    /// Whether steps are captured.
    pub(super) fn captures(&self) -> bool {
        self.decode_graphs.is_some()
    }

    /// Whether the CPU computes.
    pub(super) fn is_on_cpu(&self) -> bool {
        self.device.is_cpu()
    }

    /// Whether the device has failed for good.
    ///
    /// # Errors
    ///
    /// What failed.
    pub(super) fn check_device(&self) -> Result<()> {
        check_device(&self.device)
    }

    /// Starts the step after the last one while its tokens are sampled, if both can be graphs.
    pub(super) fn run_ahead(&self, draws: &StartedDraws) -> Result<()> {
        // A step changes states in place, so one that may be dropped must not run.
        let Some(graphs) = self.decode_graphs.as_ref().filter(|_| self.states.is_empty()) else {
            return Ok(());
        };
        graphs.borrow_mut().run_ahead(self.model.as_ref(), &self.context(), draws)
    }

    /// Tells the tokens that were sampled from all rows in order, or that one of them failed.
    pub(super) fn tokens_sampled(&self, token_ids: Option<Vec<u32>>) {
        if let Some(graphs) = &self.decode_graphs {
            graphs.borrow_mut().tokens_sampled(token_ids);
        }
    }

    /// Copies blocks and states, each `(from, to)`; none is both source and target.
    pub(super) fn copy(&self, blocks: &[(u32, u32)], states: &[(u32, u32)]) -> Result<()> {
        kv_tensors::copy_rows(kv_tensors::tensors(&self.kv), blocks)?;
        kv_tensors::copy_rows(self.states.iter(), states)
    }

    /// Copies states to snapshots, each `(from, to)`.
    pub(super) fn take_snapshots(&self, copies: &[(u32, u32)]) -> Result<()> {
        kv_tensors::copy_rows_between(&self.states, &self.snapshots, copies)
    }

    /// Copies snapshots to states, each `(from, to)`.
    pub(super) fn restore(&self, copies: &[(u32, u32)]) -> Result<()> {
        kv_tensors::copy_rows_between(&self.snapshots, &self.states, copies)
    }

    /// A block's rows of all layers as bytes.
    pub(super) fn read_block(&self, block: u32) -> Result<Vec<u8>> {
        kv_tensors::read_row(kv_tensors::tensors(&self.kv), block)
    }

    /// Replaces a block's rows.
    pub(super) fn write_block(&self, block: u32, bytes: &[u8]) -> Result<()> {
        kv_tensors::write_row(kv_tensors::tensors(&self.kv), block, bytes)
    }

    /// A snapshot as bytes.
    pub(super) fn read_snapshot(&self, row: u32) -> Result<Vec<u8>> {
        kv_tensors::read_row(self.snapshots.iter(), row)
    }

    /// Replaces a snapshot.
    pub(super) fn write_snapshot(&self, row: u32, bytes: &[u8]) -> Result<()> {
        kv_tensors::write_row(self.snapshots.iter(), row, bytes)
    }

    fn context(&self) -> ForwardContext<'_> {
        let Self { device, kv, states, .. } = self;
        ForwardContext { device, kv, states, interruption: None }
    }

    /// Whether the model is a stage of one.
    pub(super) fn is_stage(&self) -> bool {
        self.model.is_stage()
    }

    /// The results of a step from the hidden states of all rows that are wanted, one behind the other.
    pub(super) fn finish(&self, batch: &ForwardBatch, hidden: Vec<f32>) -> Result<ForwardOutput> {
        let shape = (batch.wanted_rows().len(), self.model.hidden_size());
        self.model.finish(batch, &Tensor::from_vec(hidden, shape, &self.device)?)
    }

    /// Computes a step, which may end early where that leaves nothing behind: recurrent states change in
    /// place, and a GPU has all of a step before its first layer ends.
    pub(super) fn forward(
        &self,
        batch: &ForwardBatch,
        interruption: Option<&Interruption>,
    ) -> Result<ForwardOutput> {
        let interruption = interruption.filter(|_| self.is_on_cpu() && self.states.is_empty());
        let context = ForwardContext { interruption, ..self.context() };
        if let Some(graphs) = &self.decode_graphs
            && let Some(output) =
                graphs.borrow_mut().forward(self.model.as_ref(), &context, batch)?
        {
            return Ok(output);
        }
        self.model.forward(&context, &*batch.on(&self.device)?)
    }
}

/// What a model works together with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Partner<'a> {
    /// A head that drafts is told of every token, if there is one.
    Head(&'a HeadInput),
    /// It is such a head, is given `width` numbers with every token, and may do no more than remember them.
    Model { width: usize, remembers: bool },
    /// It drafts blocks, all of whose tokens have logits.
    Blocks,
}

/// The largest steps that a model is asked for.
#[derive(Clone, Copy, Debug)]
pub struct LargestSteps {
    /// Most tokens of a step.
    pub tokens: usize,
    /// Most of them with logits.
    pub rows: usize,
    /// Most tokens of a sequence.
    pub context: usize,
}

impl LargestSteps {
    /// The steps that are rehearsed, each as the tokens of its sequences: as many tokens as a step can
    /// have, and as many single ones as products of quantized weights treat apart. Their workspaces
    /// grow, and a captured step goes on with the memory that there was when it was captured.
    fn steps(self) -> [Vec<usize>; 2] {
        let (tokens, context) = (self.tokens.max(1), self.context.max(1));
        let mut largest = vec![context; tokens / context];
        largest.extend((!tokens.is_multiple_of(context)).then_some(tokens % context));
        [largest, vec![1; MOST_APART]]
    }

    /// The same, with sequences of at most so many blocks.
    #[must_use]
    pub fn within(self, blocks: usize) -> Self {
        Self { context: self.context.min(blocks.saturating_mul(BLOCK_SIZE)), ..self }
    }

    fn decode_bounds(self) -> DecodeBounds {
        DecodeBounds { tokens: self.rows, blocks: self.context.div_ceil(BLOCK_SIZE) }
    }
}

/// Computes the largest steps and drops the results: what memory they take was taken once then.
pub(super) fn rehearse(
    model: &dyn CausalLm,
    device: &Device,
    largest: LargestSteps,
    kv_format: KvFormat,
    partner: Partner<'_>,
) -> Result<()> {
    let shape = model.kv_shape();
    let kv = kv_tensors::allocate(&shape, 1, kv_format, device)?;
    let steps = largest.steps();
    // Each sequence has a state of its own.
    let states = shape.states(steps.iter().map(Vec::len).max().unwrap_or(1), device)?;
    let context = ForwardContext { device, kv: &kv, states: &states, interruption: None };
    for lengths in steps {
        let step = first_steps(&lengths)?;
        let count = narrow(step.input_ids.len());
        let logits_rows = (count - narrow(largest.rows).min(count)..count).collect();
        let batch = if model.gives_logits() {
            ForwardBatch { step, logits_rows, ..ForwardBatch::default() }
        } else {
            ForwardBatch { step, hidden_rows: logits_rows, ..ForwardBatch::default() }
        };
        let batch = partner.of_all(batch, count, device)?;
        model.forward(&context, &*batch.on(device)?)?;
    }
    if let Partner::Head(told) = partner
        && CudaGraph::wanted(device)
        && model.gives_logits()
        && !model.needs_hidden()
    {
        decode_graphs::rehearse(model, &context, largest.decode_bounds(), told)?;
    }
    device.synchronize()
}

impl Partner<'_> {
    /// The batch of so many tokens with all that is given or told.
    fn of_all(self, batch: ForwardBatch, tokens: u32, device: &Device) -> Result<ForwardBatch> {
        let (width, remembers) = match self {
            Self::Head(told) => return Ok(told.of_all(batch, tokens)),
            Self::Model { width, remembers } => (width, remembers),
            Self::Blocks => {
                return Ok(ForwardBatch { logits_rows: (0..tokens).collect(), ..batch });
            }
        };
        let given = Tensor::zeros((tokens as usize, width), DType::F32, device)?;
        let previous_hidden = Some(PreviousHidden(given));
        let logits_rows = if remembers { Vec::new() } else { batch.logits_rows };
        let hidden_rows = logits_rows.clone();
        Ok(ForwardBatch { logits_rows, hidden_rows, previous_hidden, ..batch })
    }
}

/// A step of new sequences of these lengths, whose block tables all repeat the only block.
pub(super) fn first_steps(lengths: &[usize]) -> Result<Step> {
    let mut step = Step { cu_seqlens_q: vec![0], ..Step::default() };
    for (seq, length) in lengths.iter().enumerate() {
        let count = u32::try_from(*length).map_err(candle_core::Error::wrap)?;
        step.positions.extend(0..count);
        step.block_tables.push(vec![0; length.div_ceil(BLOCK_SIZE)]);
        step.context_lens.push(count);
        step.sequence_lens.push(count);
        step.state_slots.push(narrow(seq));
        step.cu_seqlens_q.push(narrow(step.positions.len()));
    }
    step.input_ids = vec![0; step.positions.len()];
    step.slots = step.positions.iter().map(|position| position % narrow(BLOCK_SIZE)).collect();
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tokens_of_a_step_are_rehearsed_whatever_the_context_and_a_few_single_ones() {
        let steps = |tokens, context| LargestSteps { tokens, rows: 4, context }.steps();
        assert_eq!(steps(2048, 131_072), [vec![2048], vec![1; 8]]);
        assert_eq!(steps(2048, 1024), [vec![1024, 1024], vec![1; 8]]);
        assert_eq!(steps(100, 64), [vec![64, 36], vec![1; 8]]);
        let largest = LargestSteps { tokens: 1, rows: 9, context: 10_000_000 }.within(100);
        assert_eq!(largest.decode_bounds(), DecodeBounds { tokens: 9, blocks: 100 });
        let step = first_steps(&[40, 3]).unwrap();
        assert_eq!(step.cu_seqlens_q, [0, 40, 43]);
        assert_eq!(
            (&step.positions[38..], &step.slots[38..]),
            (&[38, 39, 0, 1, 2][..], &[6, 7, 0, 1, 2][..])
        );
        assert_eq!(step.block_tables, [vec![0, 0], vec![0]]);
        assert_eq!(step.state_slots, [0, 1]);
    }
}
