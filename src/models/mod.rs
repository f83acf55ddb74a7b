//! The models: one decoder, one small `spec()` file per architecture, one table.

use candle_core::{Result, Tensor};

use crate::layers::forward::{ForwardBatch, ForwardContext, KvShape};

/// A causal language model over a paged KV cache.
pub trait CausalLm: Send {
    /// Runs one step: writes K and V of every token of the batch and returns logits
    /// `[batch.logits_rows.len(), vocab_size]` in f32 on the context's device.
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<Tensor>;

    /// The KV cache this model needs.
    fn kv_shape(&self) -> KvShape;

    /// Number of logits.
    fn vocab_size(&self) -> usize;

    /// The longest sequence the checkpoint declares.
    fn max_position_embeddings(&self) -> usize;
}
