//! One process's part of a running model: its weights, its KV cache, the states of its sequences.

use std::cell::RefCell;

use candle_core::{Device, Result, Tensor};

use super::batch::narrow;
use super::cache_sizes::CacheSizes;
use super::decode_graphs::DecodeGraphs;
use super::kv_tensors;
use crate::layers::forward::{
    BLOCK_SIZE, CudaGraph, ForwardBatch, ForwardContext, KvFormat, KvLayer, StartedDraws, Step,
};
use crate::models::{CausalLm, ForwardOutput};

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
        let captures = alone && CudaGraph::wanted(&device);
        let decode_graphs = captures.then(RefCell::default);
        Ok(Self { model, device, kv, states, snapshots, decode_graphs })
    }

    /// The device of activations.
    pub(super) fn device(&self) -> &Device {
        &self.device
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
        ForwardContext { device: &self.device, kv: &self.kv, states: &self.states }
    }

    /// Computes a step.
    pub(super) fn forward(&self, batch: &ForwardBatch) -> Result<ForwardOutput> {
        let context = self.context();
        if let Some(graphs) = &self.decode_graphs
            && let Some(logits) =
                graphs.borrow_mut().forward(self.model.as_ref(), &context, batch)?
        {
            return Ok(ForwardOutput { logits, hidden: None });
        }
        self.model.forward(&context, &*batch.on(&self.device)?)
    }
}

/// Computes a step of `tokens` tokens of one sequence, the last `rows` of them with logits, and drops
/// the result: what memory the largest step takes was taken once then.
pub(super) fn rehearse(
    model: &dyn CausalLm,
    device: &Device,
    [tokens, rows]: [usize; 2],
    kv_format: KvFormat,
) -> Result<()> {
    let shape = model.kv_shape();
    let kv = kv_tensors::allocate(&shape, 1, kv_format, device)?;
    let states = shape.states(1, device)?;
    let context = ForwardContext { device, kv: &kv, states: &states };
    let count = u32::try_from(tokens).map_err(candle_core::Error::wrap)?;
    // The sequence's block table repeats the only block.
    let step = Step {
        input_ids: vec![0; tokens],
        positions: (0..count).collect(),
        slots: (0..count).map(|position| position % narrow(BLOCK_SIZE)).collect(),
        block_tables: vec![vec![0; tokens.div_ceil(BLOCK_SIZE)]],
        cu_seqlens_q: vec![0, count],
        context_lens: vec![count],
        sequence_lens: vec![count],
        state_slots: vec![0],
        ..Step::default()
    };
    let logits_rows = (count - narrow(rows.min(tokens))..count).collect();
    let batch = if model.gives_logits() {
        ForwardBatch { step, logits_rows, ..ForwardBatch::default() }
    } else {
        ForwardBatch { step, hidden_rows: logits_rows, ..ForwardBatch::default() }
    };
    model.forward(&context, &*batch.on(device)?)?;
    device.synchronize()
}
