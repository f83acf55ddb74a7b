//! What one process has of a running model: its weights, its part of the KV cache, its states.

use std::cell::RefCell;

use candle_core::{Device, Result, Tensor};

use super::batch::narrow;
use super::kv_tensors;
use super::recorded::Recorded;
use crate::layers::forward::{
    BLOCK_SIZE, CudaGraph, ForwardBatch, ForwardContext, KvFormat, KvLayer, StartedDraws,
};
use crate::models::{CausalLm, ForwardOutput};

/// All of it, on one device.
pub(super) struct Local {
    model: Box<dyn CausalLm>,
    device: Device,
    kv: Vec<KvLayer>,
    states: Vec<Tensor>,
    /// Decode steps, if they are recorded.
    recorded: Option<RefCell<Recorded>>,
}

impl Local {
    /// Takes the model and allocates its KV cache of `num_blocks` blocks in `kv_format`, and the
    /// states of `num_slots` sequences. `alone` says that there are no other ranks.
    pub(super) fn new(
        model: Box<dyn CausalLm>,
        device: Device,
        num_blocks: usize,
        kv_format: KvFormat,
        num_slots: usize,
        alone: bool,
    ) -> Result<Self> {
        let shape = model.kv_shape();
        let kv = kv_tensors::allocate(&shape, num_blocks, kv_format, &device)?;
        let states = shape.states(num_slots, &device)?;
        let recorded =
            (alone && CudaGraph::wanted(&device)).then(|| RefCell::new(Recorded::default()));
        Ok(Self { model, device, kv, states, recorded })
    }

    /// Starts the step behind the last one while its tokens are drawn, if both are of a kind that is
    /// recorded.
    pub(super) fn run_ahead(&self, draws: &StartedDraws) -> Result<()> {
        // States are changed in place: a step that is dropped must not have read them.
        let Some(recorded) = self.recorded.as_ref().filter(|_| self.states.is_empty()) else {
            return Ok(());
        };
        recorded.borrow_mut().run_ahead(self.model.as_ref(), &self.context(), draws)
    }

    /// Tells the tokens that were drawn, of all rows in order, or that not all were.
    pub(super) fn drew(&self, tokens: Option<Vec<u32>>) {
        if let Some(recorded) = &self.recorded {
            recorded.borrow_mut().drew(tokens);
        }
    }

    /// Copies blocks and states, each `(from, to)`; none is both source and target.
    pub(super) fn copy(&self, blocks: &[(u32, u32)], states: &[(u32, u32)]) -> Result<()> {
        kv_tensors::copy_rows(kv_tensors::tensors(&self.kv), blocks)?;
        kv_tensors::copy_rows(self.states.iter(), states)
    }

    fn context(&self) -> ForwardContext<'_> {
        ForwardContext { device: &self.device, kv: &self.kv, states: &self.states }
    }

    /// One step.
    pub(super) fn forward(&self, batch: &ForwardBatch) -> Result<ForwardOutput> {
        let context = self.context();
        if let Some(recorded) = &self.recorded
            && let Some(logits) =
                recorded.borrow_mut().forward(self.model.as_ref(), &context, batch)?
        {
            return Ok(ForwardOutput { logits, hidden: None });
        }
        self.model.forward(&context, &*batch.moved_to(&self.device)?)
    }
}

/// Computes a step of `tokens` tokens of one sequence, of the last `rows` of which logits are
/// wanted, and forgets it: so that whatever the largest step takes was taken once.
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
    // All of the sequence's blocks are the one that there is.
    let batch = ForwardBatch {
        input_ids: vec![0; tokens],
        positions: (0..count).collect(),
        slot_mapping: (0..count).map(|position| position % narrow(BLOCK_SIZE)).collect(),
        block_tables: vec![vec![0; tokens.div_ceil(BLOCK_SIZE)]],
        cu_seqlens_q: vec![0, count],
        context_lens: vec![count],
        sequence_lens: vec![count],
        state_slots: vec![0],
        logits_rows: (count - narrow(rows.min(tokens))..count).collect(),
        ..ForwardBatch::default()
    };
    model.forward(&context, &*batch.moved_to(device)?)?;
    device.synchronize()
}
