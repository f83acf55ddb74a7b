//! A step's plan to logits and hidden states: owns the model, the KV tensors and the states of
//! sequences. Knows no sampling parameters, no requests, no channels.

mod batch;
mod encoder;
mod hidden;
mod kv_tensors;
mod logits;

use std::sync::Arc;

use candle_core::{Device, Result, Tensor};

pub use encoder::EncoderRunner;
pub use hidden::HiddenStates;
pub use logits::Logits;

pub use crate::layers::forward::{Adapter, BLOCK_SIZE, KvFormat, KvHeads, KvShape};
use crate::layers::forward::{ForwardContext, KvLayer};
use crate::models::CausalLm;
use crate::scheduler::output::{AdapterId, Copies, PlannedSequence};

/// What a step gives, in the order of its plan.
pub struct StepOutput {
    /// A row for each token that logits are wanted of.
    pub logits: Logits,
    /// A row for each token that is pooled.
    pub hidden: HiddenStates,
}

/// Runs one model on one device.
pub struct Runner {
    model: Box<dyn CausalLm>,
    device: Device,
    kv: Vec<KvLayer>,
    states: Vec<Tensor>,
}

impl Runner {
    /// Takes the model and allocates its KV cache of `num_blocks` blocks in `kv_format`, and the
    /// states of `num_slots` sequences.
    pub fn new(
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

    /// Copies blocks and states; none is both source and target.
    pub fn copy(&self, copies: &[Copies]) -> Result<()> {
        let blocks: Vec<_> = copies.iter().filter_map(|copies| copies.block).collect();
        let states: Vec<_> = copies.iter().filter_map(|copies| copies.state).collect();
        kv_tensors::copy_rows(kv_tensors::tensors(&self.kv), &blocks)?;
        kv_tensors::copy_rows(self.states.iter(), &states)
    }

    /// Runs the planned sequences, some with the adapters that `adapter` finds; the rows that they
    /// want, in their order.
    pub fn run<'a>(
        &self,
        plan: impl Iterator<Item = PlannedSequence<'a>>,
        adapter: impl Fn(AdapterId) -> Arc<Adapter>,
    ) -> Result<StepOutput> {
        let batch = batch::flatten(plan, adapter);
        let context = ForwardContext { device: &self.device, kv: &self.kv, states: &self.states };
        let output = self.model.forward(&context, &batch)?;
        Ok(StepOutput {
            logits: Logits::from_tensor(output.logits)?,
            hidden: HiddenStates::from_tensor(output.hidden)?,
        })
    }
}
