//! What rank 0 asks of the others, and what they tell it of themselves.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::layers::forward::ForwardBatch;
use crate::runner::cache_sizes::CacheSizes;
use crate::runner::decode_graphs::DecodeBounds;

/// What rank 0 asks the others to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order<'a> {
    /// Allocate the KV cache and the states.
    Start(CacheSizes),
    /// Capture decode steps, and say of how many tokens and blocks.
    Capture(DecodeBounds),
    /// Copy blocks and states, each `(from, to)`.
    Copy { blocks: Vec<(u32, u32)>, states: Vec<(u32, u32)> },
    /// Say that this rank is still there.
    Answer,
    /// Copy states to snapshots, each `(from, to)`.
    TakeSnapshots(Vec<(u32, u32)>),
    /// Copy snapshots to states, each `(from, to)`.
    Restore(Vec<(u32, u32)>),
    /// Compute a step, with a part of each layer.
    Forward(Box<Cow<'a, ForwardBatch>>),
    /// Compute a step with some of the layers, in so many microbatches one after the other.
    Stage { batch: Box<Cow<'a, ForwardBatch>>, microbatches: usize },
}

/// The memory of a rank that has loaded its part of the model, and what that takes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMemory {
    /// Bytes that are not in use.
    pub free: usize,
    /// Bytes of all memory, where the device has memory of its own.
    pub own: Option<usize>,
    /// Bytes of this rank's part of a block of the KV cache.
    pub block_bytes: usize,
    /// Bytes of this rank's part of the recurrent states of a sequence.
    pub state_bytes: usize,
}
