//! The inputs of a layer besides hidden states.

use std::cell::RefCell;

use candle_core::Tensor;

use super::spec::Memory;
use crate::layers::adapter::LayerAdapters;
use crate::layers::attention::Selection;
use crate::layers::forward::{ForwardContext, Step};
use crate::layers::rope::RopeAngles;

/// The inputs of a layer besides hidden states, in one forward pass.
pub(super) struct LayerStep<'a> {
    pub(super) context: &'a ForwardContext<'a>,
    pub(super) step: &'a Step,
    pub(super) angles: &'a RopeAngles,
    /// Where the layer's memory is in the context.
    pub(super) memory: Memory,
    /// The layer's own embeddings of the tokens, `[num_tokens, width]`.
    pub(super) input: Option<Tensor>,
    /// The common embeddings of the tokens, `[num_tokens, hidden]`, if a layer needs them.
    pub(super) embeddings: Option<&'a Tensor>,
    /// What experts gave beside the first layer of a pair, until it is added behind the second one.
    pub(super) shortcut: &'a RefCell<Option<Tensor>>,
    /// Which tokens of their contexts the rows see, as the last layer that chose said.
    pub(super) selection: &'a Selection,
    /// The rows that are still needed after attention; `None`: all.
    pub(super) keep: Option<&'a Tensor>,
    /// The adapters of all rows, and of the rows that are kept after attention.
    pub(super) adapters: [LayerAdapters<'a>; 2],
}
