//! A model that several processes compute, each with its part of the weights and of the KV cache.
//!
//! Rank 0 plans, samples and answers; it tells the others what to compute, and they follow. Sums
//! over ranks are made by rank 0 in the order of ranks, so that they have the same bits in every
//! run. Once a step has failed halfway nobody knows what the others have done: the group is broken
//! then and computes nothing more.

mod follower;
mod leader;
mod link;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use follower::Follower;
pub use leader::Leader;
pub use link::Link;

use crate::layers::forward::{ForwardBatch, KvFormat};

/// What rank 0 tells the others to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order<'a> {
    /// Allocate the KV cache and the states.
    Start { num_blocks: usize, kv_format: KvFormat, num_slots: usize },
    /// Copy blocks and states, each `(from, to)`.
    Copy { blocks: Vec<(u32, u32)>, states: Vec<(u32, u32)> },
    /// Compute a step.
    Forward(Box<Cow<'a, ForwardBatch>>),
}

/// What a rank that has loaded its part says of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMemory {
    /// Bytes that are not in use.
    pub free: usize,
    /// Bytes of all of it, where it is a device's own.
    pub own: Option<usize>,
}
