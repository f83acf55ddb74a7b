//! The loads of waiting sequences, and what is to be told to the tier that they come from.

use std::collections::{HashMap, VecDeque};

use super::sequence::SequenceId;
use crate::kv_cache::BlockTable;
use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::content::Content;

/// A load of a waiting sequence.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    /// What is yet to arrive, in order.
    pub(super) left: VecDeque<Content>,
    /// Cached blocks that stay until the sequence is admitted.
    pub(super) held: BlockTable,
}

/// What is exchanged with a slower tier.
#[derive(Clone, Debug, Default)]
pub(super) struct Loads {
    /// There is such a tier.
    pub(super) enabled: bool,
    pub(super) of: HashMap<SequenceId, Load>,
    /// Content that was cached, in order.
    pub(super) added: Vec<Content>,
    /// Chains of sequences that ended or were preempted.
    pub(super) released: Vec<Vec<BlockHash>>,
}

impl Loads {
    /// Notes content that was computed and is cached now.
    pub(super) fn add(&mut self, content: Content) {
        if self.enabled {
            self.added.push(content);
        }
    }

    /// Notes that a sequence does not use these blocks any more.
    pub(super) fn release(&mut self, chain: &[BlockHash]) {
        if self.enabled && !chain.is_empty() {
            self.released.push(chain.to_vec());
        }
    }
}
