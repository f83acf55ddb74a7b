//! What the cache holds, by name: blocks, and the snapshots beside them.

use super::block_hash::BlockHash;

/// One thing that the cache can hold, and that can be kept elsewhere too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Content {
    /// Keys and values of a full block.
    Block(BlockHash),
    /// The recurrent states behind a block.
    Snapshot(BlockHash),
}

impl Content {
    /// The hash of the block, or of the block that the states are behind.
    pub fn hash(self) -> BlockHash {
        match self {
            Self::Block(hash) | Self::Snapshot(hash) => hash,
        }
    }
}
