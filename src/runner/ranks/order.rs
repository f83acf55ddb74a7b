//! What rank 0 asks of the others, and what they tell it of themselves.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::layers::forward::ForwardBatch;
use crate::runner::cache_sizes::CacheSizes;

/// What rank 0 asks the others to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order<'a> {
    /// Allocate the KV cache and the states.
    Start(CacheSizes),
    /// Copy blocks and states, each `(from, to)`.
    Copy { blocks: Vec<(u32, u32)>, states: Vec<(u32, u32)> },
    /// Say that this rank is still there.
    Answer,
    /// Compute a step.
    Forward(Box<Cow<'a, ForwardBatch>>),
}

/// The memory of a rank that has loaded its part of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMemory {
    /// Bytes that are not in use.
    pub free: usize,
    /// Bytes of all memory, where the device has memory of its own.
    pub own: Option<usize>,
}
