//! What one process has of a running model: its weights, its part of the KV cache, its states.

use candle_core::{Device, Result, Tensor};

use super::kv_tensors;
use crate::layers::forward::{ForwardBatch, ForwardContext, KvFormat, KvLayer};
use crate::models::{CausalLm, ForwardOutput};

/// All of it, on one device.
pub(super) struct Local {
    model: Box<dyn CausalLm>,
    device: Device,
    kv: Vec<KvLayer>,
    states: Vec<Tensor>,
}

impl Local {
    /// Takes the model and allocates its KV cache of `num_blocks` blocks in `kv_format`, and the
    /// states of `num_slots` sequences.
    pub(super) fn new(
        model: Box<dyn CausalLm>,
        device: Device,
        num_blocks: usize,
        kv_format: KvFormat,
        num_slots: usize,
    ) -> Result<Self> {
        let shape = model.kv_shape();
        let kv = kv_tensors::allocate(&shape, num_blocks, kv_format, &device)?;
        let states = shape.states(num_slots, &device)?;
        Ok(Self { model, device, kv, states })
    }

    /// Copies blocks and states, each `(from, to)`; none is both source and target.
    pub(super) fn copy(&self, blocks: &[(u32, u32)], states: &[(u32, u32)]) -> Result<()> {
        kv_tensors::copy_rows(kv_tensors::tensors(&self.kv), blocks)?;
        kv_tensors::copy_rows(self.states.iter(), states)
    }

    /// One step.
    pub(super) fn forward(&self, batch: &ForwardBatch) -> Result<ForwardOutput> {
        let context = ForwardContext { device: &self.device, kv: &self.kv, states: &self.states };
        self.model.forward(&context, batch)
    }
}
