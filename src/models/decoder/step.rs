//! The inputs of a layer besides hidden states.

use std::cell::RefCell;

use candle_core::Tensor;

use super::spec::Memory;
use crate::layers::adapter::LayerAdapters;
use crate::layers::attention::Selection;
use crate::layers::forward::{ForwardContext, Step};
use crate::layers::moe::RouterMemory;
use crate::layers::rope::RopeAngles;

/// What goes from one layer to another beside hidden states, in one forward pass.
#[derive(Default)]
pub(super) struct Carried {
    /// What experts gave beside the first layer of a pair, until it is added behind the second one.
    pub(super) shortcut: RefCell<Option<Tensor>>,
    /// What the router of the last layer saw, if the next one remembers it.
    pub(super) router_memory: RouterMemory,
    /// Which tokens of their contexts the rows see, as the last layer that chose said.
    pub(super) selection: Selection,
}

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
    /// What layers before this one left for it.
    pub(super) carried: &'a Carried,
    /// The rows that are still needed after attention; `None`: all.
    pub(super) keep: Option<&'a Tensor>,
    /// The adapters of all rows, and of the rows that are kept after attention.
    pub(super) adapters: [LayerAdapters<'a>; 2],
}
