//! What becomes reusable in the cache and what ceases to be, in the order in which it happens, for those
//! who send requests to where their beginnings are cached.
//!
//! Full blocks are told alone: parts of blocks are few tokens, and nobody routes by them.

use std::collections::HashSet;
use std::sync::Arc;

use super::block_hash::BlockHash;
use super::content::Content;

/// A full block that sequences can reuse from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    /// Its content, and that of all blocks before it.
    pub hash: BlockHash,
    /// The block before it; `None` for the first.
    pub parent: Option<BlockHash>,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// What the content depends on besides.
    pub keys: BlockKeys,
}

/// What the content of a block depends on besides tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockKeys {
    /// The LoRA adapter that it is computed with: its name, and a number of this load of it.
    pub adapter: Option<(Arc<str>, u64)>,
    /// The salt of the request; told of the first block alone, which all others follow.
    pub salt: Option<Arc<str>>,
    /// The sequence is computed as a long one, with other rotary frequencies; told as the salt is.
    pub long: bool,
    /// Digests of the pictures in it, and where each begins, counted from the block's first token:
    /// below 0 where it began before.
    pub pictures: Vec<([u8; 16], i64)>,
}

/// One change of what can be reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheEvent {
    /// A block can be reused.
    Stored(StoredBlock),
    /// Sequences of a model with recurrent layers can resume behind this block.
    StoredSnapshot(BlockHash),
    /// This can't be reused any more.
    Removed(Content),
}

/// Remembers what was told, so that everything is told once.
#[derive(Clone, Debug, Default)]
pub(super) struct EventLog {
    blocks: HashSet<BlockHash>,
    snapshots: HashSet<BlockHash>,
    events: Vec<CacheEvent>,
}

impl EventLog {
    pub(super) fn knows(&self, hash: BlockHash) -> bool {
        self.blocks.contains(&hash)
    }

    pub(super) fn stored(&mut self, block: StoredBlock) {
        if self.blocks.insert(block.hash) {
            self.events.push(CacheEvent::Stored(block));
        }
    }

    /// Notes that a block left the pool; what was never told isn't taken back.
    pub(super) fn removed(&mut self, hash: BlockHash) {
        if self.blocks.remove(&hash) {
            self.events.push(CacheEvent::Removed(Content::Block(hash)));
        }
    }

    /// What happened since the last call; `snapshots` are there now.
    pub(super) fn take(&mut self, snapshots: impl Iterator<Item = BlockHash>) -> Vec<CacheEvent> {
        let now: HashSet<BlockHash> = snapshots.collect();
        let mut gone: Vec<BlockHash> = self.snapshots.difference(&now).copied().collect();
        let mut new: Vec<BlockHash> = now.difference(&self.snapshots).copied().collect();
        // Sets have no order, events have the same one in every run.
        gone.sort_unstable();
        new.sort_unstable();
        self.snapshots = now;
        let gone = gone.into_iter().map(|hash| CacheEvent::Removed(Content::Snapshot(hash)));
        self.events.extend(gone);
        self.events.extend(new.into_iter().map(CacheEvent::StoredSnapshot));
        std::mem::take(&mut self.events)
    }
}
