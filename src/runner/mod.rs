//! A step's plan to logits and hidden states: owns the model and the KV tensors. Knows no sampling parameters, no
//! requests, no channels.

mod batch;
mod encoder;
mod hidden;
mod kv_tensors;
mod logits;

use std::sync::Arc;

use candle_core::{Device, Result};

pub use encoder::EncoderRunner;
pub use hidden::HiddenStates;
pub use logits::Logits;

pub use crate::layers::forward::{Adapter, BLOCK_SIZE, KvFormat, KvHeads, KvShape};
use crate::layers::forward::{ForwardContext, KvLayer};
use crate::models::CausalLm;
use crate::scheduler::output::{AdapterId, PlannedSequence};

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
}

impl Runner {
    /// Takes the model and allocates its KV cache of `num_blocks` blocks in `kv_format`.
    pub fn new(
        model: Box<dyn CausalLm>,
        device: Device,
        num_blocks: usize,
        kv_format: KvFormat,
    ) -> Result<Self> {
        let kv = kv_tensors::allocate(&model.kv_shape(), num_blocks, kv_format, &device)?;
        Ok(Self { model, device, kv })
    }

    /// Copies KV blocks, each `(from, to)`; no block is both.
    pub fn copy_blocks(&self, blocks: &[(u32, u32)]) -> Result<()> {
        kv_tensors::copy_blocks(&self.kv, blocks)
    }

    /// Runs the planned sequences, some with the adapters that `adapter` finds; the rows that they
    /// want, in their order.
    pub fn run<'a>(
        &self,
        plan: impl Iterator<Item = PlannedSequence<'a>>,
        adapter: impl Fn(AdapterId) -> Arc<Adapter>,
    ) -> Result<StepOutput> {
        let batch = batch::flatten(plan, adapter);
        let context = ForwardContext { device: &self.device, kv: &self.kv };
        let output = self.model.forward(&context, &batch)?;
        Ok(StepOutput {
            logits: Logits::from_tensor(output.logits)?,
            hidden: HiddenStates::from_tensor(output.hidden)?,
        })
    }
}
