//! The inputs of a layer besides hidden states.

use candle_core::Tensor;

use crate::layers::adapter::LayerAdapters;
use crate::layers::forward::{ForwardContext, Step};
use crate::layers::rope::RopeAngles;

/// The inputs of a layer besides hidden states, in one forward pass.
pub(super) struct LayerStep<'a> {
    pub(super) context: &'a ForwardContext<'a>,
    pub(super) step: &'a Step,
    pub(super) angles: &'a RopeAngles,
    /// The layer's own embeddings of the tokens, `[num_tokens, width]`.
    pub(super) input: Option<Tensor>,
    /// The rows that are still needed after attention; `None`: all.
    pub(super) keep: Option<&'a Tensor>,
    /// The adapters of all rows, and of the rows that are kept after attention.
    pub(super) adapters: [LayerAdapters<'a>; 2],
}
