//! Runs a draft model: a second model over the block tables of the first one.
//!
//! It has tensors of its own with a block for each of the first model's, so whoever has a block has both.
//! Which of them hold what, the engine knows.

use candle_core::{Device, Result, bail};

use super::batch;
use super::cache_sizes::CacheSizes;
use super::local::Local;
use super::logits::HostLogits;
use crate::layers::forward::KvFormat;
use crate::models::CausalLm;
use crate::scheduler::output::PlannedSequence;

/// A draft model with its KV cache.
pub struct DraftRunner {
    local: Local,
    /// Most tokens of a sequence that it computes.
    max_len: usize,
    vocab_size: usize,
}

impl DraftRunner {
    /// Takes the model and allocates `num_blocks` blocks.
    ///
    /// # Errors
    ///
    /// Memory doesn't suffice; the model has recurrent states, which wrong drafts would spoil.
    pub fn new(
        model: Box<dyn CausalLm>,
        device: Device,
        num_blocks: usize,
        kv_format: KvFormat,
    ) -> Result<Self> {
        if !model.kv_shape().states.is_empty() || !model.gives_logits() {
            bail!("a draft model has an output head and no recurrent layers");
        }
        // Past this length all of it would have to be computed again.
        let longest = model.fixed_rope_length().unwrap_or(usize::MAX);
        let max_len = longest.min(model.max_position_embeddings());
        let vocab_size = model.vocab_size();
        let sizes = CacheSizes { num_blocks, kv_format, num_slots: 0, num_snapshots: 0 };
        Ok(Self { local: Local::new(model, device, sizes, false)?, max_len, vocab_size })
    }

    /// Most tokens of a sequence that the model computes.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// Number of logits; tokens with higher ids are unknown to the model.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Computes the planned sequences, which have no adapters, pictures or states here. Gives a row of
    /// logits for each that samples.
    pub fn run<'a>(&self, plan: impl Iterator<Item = PlannedSequence<'a>>) -> Result<HostLogits> {
        let adapter = |_| unreachable!("the plan of a draft model has no adapters");
        let features = |_: &_| bail!("a draft model sees no pictures");
        let batch = batch::flatten(plan, adapter, features)?;
        HostLogits::from_tensor(self.local.forward(&batch)?.logits)
    }
}
