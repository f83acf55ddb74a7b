//! Which blocks hold the KV of which sequence, and which of them are shared. Pure integers.
//!
//! Prefix caching by hashed blocks as in vLLM's automatic prefix caching; every operation either
//! happens whole or not at all.
//!
//! Full blocks are shared. Of a block that a sequence needs in part, because it parts from what is known
//! inside of it or because it never became full, the first tokens are reused in a copy: keys and values
//! of a position depend on the tokens up to there alone.
//!
//! Where layers are recurrent, blocks alone don't let a sequence resume: it needs the states of those
//! layers too. A snapshot of them stands beside some of the blocks, under the same hash. A block may be
//! without one; a snapshot goes when its block is evicted, since nothing could resume there. Where
//! snapshots are taken is the scheduler's business (`scheduler::snapshots`).

pub mod block_hash;
pub mod block_pool;
pub mod content;
pub mod continuations;
pub mod events;
pub mod snapshots;

use block_hash::BlockHash;
use block_pool::{BlockId, BlockPool};
use content::Content;
use continuations::{Continuations, LEAST_COPIED};
use events::{CacheEvent, EventLog, StoredBlock};
use snapshots::{SnapshotId, SnapshotPool};

/// Tokens in a block.
pub const BLOCK_SIZE: usize = 32;

/// The blocks of one sequence in order of position; only grows while the sequence runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    blocks: Vec<BlockId>,
}

impl BlockTable {
    /// The block ids in order of position.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Tokens that the blocks can hold.
    pub fn capacity(&self) -> usize {
        self.blocks.len() * BLOCK_SIZE
    }
}

/// Hands out blocks to tables and remembers what full blocks contain.
#[derive(Clone, Debug)]
pub struct KvCacheManager {
    pool: BlockPool,
    continuations: Continuations,
    snapshots: SnapshotPool,
    prefix_cache: bool,
    // Where changes are told to somebody.
    events: Option<EventLog>,
}

impl KvCacheManager {
    /// Manages `num_blocks` blocks; without `prefix_cache` nothing is ever shared.
    pub fn new(num_blocks: usize, prefix_cache: bool) -> Self {
        let (continuations, snapshots) = Default::default();
        let pool = BlockPool::new(num_blocks);
        Self { pool, continuations, snapshots, prefix_cache, events: None }
    }

    /// The same, with `rows` for snapshots of recurrent states.
    #[must_use]
    pub fn with_snapshots(self, rows: usize) -> Self {
        Self { snapshots: SnapshotPool::new(rows), ..self }
    }

    /// The same, with changes of what can be reused kept for [`Self::take_events`].
    #[must_use]
    pub fn with_events(self) -> Self {
        Self { events: Some(EventLog::default()), ..self }
    }

    /// What can be reused since the last call and what can't any more, in order.
    pub fn take_events(&mut self) -> Vec<CacheEvent> {
        let snapshots = self.snapshots.hashes();
        self.events.as_mut().map(|log| log.take(snapshots)).unwrap_or_default()
    }

    /// Whether a block is cached and nobody was told of it yet who wants to be.
    pub fn is_untold(&self, hash: BlockHash) -> bool {
        let log = self.events.as_ref();
        log.is_some_and(|log| !log.knows(hash) && self.pool.lookup(hash).is_some())
    }

    /// Tells that a cached block can be reused.
    pub fn tell(&mut self, block: StoredBlock) {
        if let Some(log) = &mut self.events {
            log.stored(block);
        }
    }

    /// Whether full blocks are shared between sequences.
    pub fn shares_prefixes(&self) -> bool {
        self.prefix_cache
    }

    /// Blocks in the pool.
    pub fn num_blocks(&self) -> usize {
        self.pool.len()
    }

    /// Blocks that no table holds, cached content or not.
    pub fn num_free(&self) -> usize {
        self.pool.num_free()
    }

    /// Blocks that some table holds.
    pub fn num_used(&self) -> usize {
        self.pool.len() - self.pool.num_free()
    }

    /// How many leading blocks of this chain are cached.
    pub fn match_prefix(&self, hashes: &[BlockHash]) -> usize {
        if !self.prefix_cache {
            return 0;
        }
        hashes.iter().take_while(|hash| self.pool.lookup(**hash).is_some()).count()
    }

    /// The block that holds this content.
    pub fn block(&self, hash: BlockHash) -> Option<BlockId> {
        self.pool.lookup(hash)
    }

    /// The row of the snapshot behind a block.
    pub fn snapshot(&self, hash: BlockHash) -> Option<SnapshotId> {
        self.snapshots.row(hash)
    }

    /// Whether the cache holds this.
    pub fn contains(&self, content: Content) -> bool {
        match content {
            Content::Block(hash) => self.block(hash).is_some(),
            Content::Snapshot(hash) => self.snapshot(hash).is_some(),
        }
    }

    /// How many of these blocks are cached and held by no table.
    pub fn num_free_among(&self, hashes: &[BlockHash]) -> usize {
        let blocks = hashes.iter().filter_map(|hash| self.block(*hash));
        blocks.filter(|block| self.pool.is_free(*block)).count()
    }

    /// Appends those of these blocks that are cached to a table, so that they stay.
    pub fn hold(&mut self, table: &mut BlockTable, hashes: &[BlockHash]) {
        for hash in hashes {
            let Some(block) = self.pool.lookup(*hash) else { continue };
            self.pool.share(block);
            table.blocks.push(block);
        }
    }

    /// Appends a block to a table, into which `fill` copies the content of `hash`, and makes it known.
    /// Returns false where no block is free or `fill` says that it failed.
    pub fn fill_block(
        &mut self,
        table: &mut BlockTable,
        hash: BlockHash,
        fill: impl FnOnce(BlockId) -> bool,
    ) -> bool {
        let Some(block) = self.take_block() else { return false };
        table.blocks.push(block);
        let filled = fill(block);
        if filled {
            self.pool.publish(block, hash);
        }
        filled
    }

    /// Has `fill` copy the states behind a cached block to a row. Returns false where there is no row
    /// or `fill` says that it failed.
    pub fn fill_snapshot(
        &mut self,
        hash: BlockHash,
        fill: impl FnOnce(SnapshotId) -> bool,
    ) -> bool {
        let Some(row) = self.add_snapshot(hash, None) else { return false };
        let filled = fill(row);
        if !filled {
            self.snapshots.remove(hash);
        }
        filled
    }

    /// Rows for snapshots, free ones and others.
    pub fn num_snapshots(&self) -> usize {
        self.snapshots.capacity()
    }

    /// Up to which of these blocks, all cached, the last snapshot reaches: how many of them a sequence
    /// with recurrent states can resume behind.
    pub fn match_snapshot(&self, cached: &[BlockHash]) -> usize {
        cached.iter().rposition(|hash| self.snapshots.contains(*hash)).map_or(0, |last| last + 1)
    }

    /// The row of the snapshot behind a block, to be restored.
    pub fn use_snapshot(&mut self, hash: BlockHash) -> Option<SnapshotId> {
        self.snapshots.take(hash)
    }

    /// A row for the state behind a cached block; the snapshot `replaced` is given up for it. `None` if
    /// there is such a snapshot already, or no row.
    pub fn add_snapshot(
        &mut self,
        hash: BlockHash,
        replaced: Option<BlockHash>,
    ) -> Option<SnapshotId> {
        let known = self.snapshots.take(hash).is_some();
        if known || self.pool.lookup(hash).is_none() {
            return None;
        }
        if let Some(replaced) = replaced {
            self.snapshots.remove(replaced);
        }
        self.snapshots.add(hash)
    }

    /// Forgets all snapshots.
    pub fn clear_snapshots(&mut self) {
        self.snapshots.clear();
    }

    /// Fills an empty table: the cached blocks of `prefix` (all of which [`Self::match_prefix`]
    /// found), then fresh blocks up to `num_tokens`. Returns false, and changes nothing, when the
    /// pool has too few free blocks.
    pub fn allocate(
        &mut self,
        table: &mut BlockTable,
        prefix: &[BlockHash],
        num_tokens: usize,
    ) -> bool {
        debug_assert!(table.blocks.is_empty(), "a table is filled once");
        let cached: Vec<_> = prefix.iter().filter_map(|hash| self.pool.lookup(*hash)).collect();
        debug_assert_eq!(cached.len(), prefix.len(), "the whole prefix is cached");
        let reclaimed = cached.iter().filter(|block| self.pool.is_free(**block)).count();
        let fresh = num_tokens.div_ceil(BLOCK_SIZE).saturating_sub(cached.len());
        if self.pool.num_free() < reclaimed + fresh {
            return false;
        }
        // Shared blocks first: a fresh one must not evict them.
        for block in &cached {
            self.pool.share(*block);
        }
        table.blocks = cached;
        self.grow(table, num_tokens)
    }

    /// Appends blocks until `num_tokens` fit. Returns false, and changes nothing, when the pool
    /// has too few free blocks.
    pub fn grow(&mut self, table: &mut BlockTable, num_tokens: usize) -> bool {
        let missing = num_tokens.div_ceil(BLOCK_SIZE).saturating_sub(table.blocks.len());
        if self.pool.num_free() < missing {
            return false;
        }
        table.blocks.extend((0..missing).map_while(|_| self.take_block()));
        true
    }

    /// A free block, whose content is evicted, and the snapshot behind it.
    fn take_block(&mut self) -> Option<BlockId> {
        if let Some(hash) = self.pool.next_evicted() {
            self.continuations.remove(hash);
            self.snapshots.remove(hash);
            if let Some(log) = &mut self.events {
                log.removed(hash);
            }
        }
        self.pool.allocate()
    }

    /// Forks a table: the first `full` blocks are shared. Where `copies_next` and a block is free, the
    /// next block is to be copied, `(from, to)`.
    pub fn fork(
        &mut self,
        table: &BlockTable,
        full: usize,
        copies_next: bool,
    ) -> (BlockTable, Option<(BlockId, BlockId)>) {
        let mut forked = BlockTable { blocks: table.blocks[..full].to_vec() };
        for block in &forked.blocks {
            self.pool.share(*block);
        }
        let to = copies_next.then(|| self.take_block()).flatten();
        forked.blocks.extend(to);
        let copy = to.map(|to| (table.blocks[full], to));
        (forked, copy)
    }

    /// Makes the full block at `index` of a table known as the cached content of `hash`; its KV is
    /// written. Returns whether it was not known before.
    pub fn publish(&mut self, table: &BlockTable, index: usize, hash: BlockHash) -> bool {
        self.prefix_cache && self.pool.publish(table.blocks[index], hash)
    }

    /// Makes the tokens of a cached block known, so that sequences can copy a part of it: its hash, the
    /// chain that it continues, and the tokens. Blocks with fewer of the same tokens are evicted soon.
    pub fn add_tokens(&mut self, hash: BlockHash, parent: BlockHash, tokens: &[u32]) {
        if self.pool.lookup(hash).is_none() {
            return;
        }
        for beginning in self.continuations.beginnings(parent, tokens) {
            if self.pool.forget(beginning) {
                self.continuations.remove(beginning);
                // Of a full block with a picture only the tokens before it count.
                if let Some(log) = &mut self.events {
                    log.removed(beginning);
                }
            }
        }
        self.continuations.add(hash, parent, tokens);
    }

    /// Makes a block known that is not full: the chain that it continues, and its `tokens`, whose KV is
    /// written.
    pub fn publish_part(
        &mut self,
        table: &BlockTable,
        index: usize,
        parent: BlockHash,
        tokens: &[u32],
    ) {
        let known = self.continuations.longest(parent, tokens).map_or(0, |(_, common)| common);
        if self.prefix_cache && tokens.len() >= LEAST_COPIED && known < tokens.len() {
            let hash = parent.part(tokens);
            self.pool.publish(table.blocks[index], hash);
            self.add_tokens(hash, parent, tokens);
        }
    }

    /// The cached block behind a chain that begins with most of these `tokens`, enough of them to be
    /// worth a copy, and with how many.
    pub fn match_part(&mut self, parent: BlockHash, tokens: &[u32]) -> Option<(BlockId, usize)> {
        let (hash, common) = self.continuations.longest(parent, tokens)?;
        let block = self.pool.lookup(hash)?;
        // As recently used as what is shared.
        self.pool.share(block);
        self.pool.release(block);
        Some((block, common))
    }

    /// Empties a table. Its last blocks become the first to be evicted, so that what stays cached
    /// of a chain is its beginning.
    pub fn release(&mut self, table: &mut BlockTable) {
        for block in table.blocks.drain(..).rev() {
            self.pool.release(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn chain(tokens: &[u32]) -> Vec<BlockHash> {
        tokens
            .chunks_exact(BLOCK_SIZE)
            .scan(BlockHash::root(None), |hash, block| {
                *hash = hash.chain(block);
                Some(*hash)
            })
            .collect()
    }

    /// The chain before the block at `index`.
    fn before(hashes: &[BlockHash], index: usize) -> BlockHash {
        index.checked_sub(1).map_or_else(|| BlockHash::root(None), |last| hashes[last])
    }

    #[derive(Clone, Debug)]
    enum Action {
        Start { family: u32, blocks: usize },
        Grow { victim: usize, tokens: usize },
        Publish { victim: usize },
        Snapshot { victim: usize, block: usize, replaced: Option<usize> },
        Fork { victim: usize, full: usize, copies: bool },
        Part { victim: usize, tokens: usize },
        Release { victim: usize },
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let action = prop_oneof![
            (0..3u32, 1..6usize).prop_map(|(family, blocks)| Action::Start { family, blocks }),
            (0..8usize, 1..80usize).prop_map(|(victim, tokens)| Action::Grow { victim, tokens }),
            (0..8usize).prop_map(|victim| Action::Publish { victim }),
            (0..8usize, 0..6usize, prop::option::of(0..6usize))
                .prop_map(|(victim, block, replaced)| Action::Snapshot { victim, block, replaced }),
            (0..8usize, 0..6usize, any::<bool>()).prop_map(|(victim, full, copies)| Action::Fork {
                victim,
                full,
                copies
            }),
            (0..8usize, 1..32usize).prop_map(|(victim, tokens)| Action::Part { victim, tokens }),
            (0..8usize).prop_map(|victim| Action::Release { victim }),
        ];
        prop::collection::vec(action, 1..80)
    }

    proptest! {
        #[test]
        fn every_block_is_free_xor_referenced(actions in actions()) {
            let mut manager = KvCacheManager::new(12, true).with_snapshots(3);
            let mut live: Vec<(BlockTable, Vec<BlockHash>, u32)> = Vec::new();
            for action in actions {
                match action {
                    Action::Start { family, blocks } => {
                        let hashes = chain(&vec![family; blocks * BLOCK_SIZE]);
                        let matched = manager.match_prefix(&hashes);
                        let mut table = BlockTable::default();
                        let before = manager.num_used();
                        let tokens = blocks * BLOCK_SIZE + 1;
                        if manager.allocate(&mut table, &hashes[..matched], tokens) {
                            prop_assert!(table.capacity() >= tokens);
                            live.push((table, hashes, family));
                        } else {
                            prop_assert_eq!(before, manager.num_used());
                        }
                    }
                    Action::Grow { victim, tokens } if victim < live.len() => {
                        let table = &mut live[victim].0;
                        let (before, wanted) = (table.clone(), table.capacity() + tokens);
                        if manager.grow(table, wanted) {
                            prop_assert!(table.capacity() >= wanted);
                            prop_assert!(table.blocks().starts_with(before.blocks()));
                        } else {
                            prop_assert_eq!(&before, &*table);
                        }
                    }
                    Action::Publish { victim } if victim < live.len() => {
                        let (table, hashes, family) = &live[victim];
                        for (index, hash) in hashes.iter().enumerate() {
                            manager.publish(table, index, *hash);
                            let parent = before(hashes, index);
                            manager.add_tokens(*hash, parent, &[*family; BLOCK_SIZE]);
                        }
                    }
                    Action::Part { victim, tokens } if victim < live.len() => {
                        let (table, hashes, family) = &live[victim];
                        let (parent, tokens) = (before(hashes, hashes.len()), vec![*family; tokens]);
                        if table.blocks().len() > hashes.len() {
                            manager.publish_part(table, hashes.len(), parent, &tokens);
                        }
                        if let Some((_, common)) = manager.match_part(parent, &tokens) {
                            prop_assert!((LEAST_COPIED..=tokens.len()).contains(&common));
                        }
                    }
                    Action::Snapshot { victim, block, replaced } if victim < live.len() => {
                        let hashes = &live[victim].1;
                        let Some(hash) = hashes.get(block) else { continue };
                        let cached = manager.match_prefix(hashes);
                        let before = manager.match_snapshot(&hashes[..cached]);
                        let replaced = replaced.and_then(|index| hashes.get(index)).copied();
                        let row = manager.add_snapshot(*hash, replaced);
                        let after = manager.match_snapshot(&hashes[..cached]);
                        if block < cached {
                            prop_assert!(manager.use_snapshot(*hash).is_some());
                            prop_assert!(after > block);
                        }
                        prop_assert!(row.is_some() || after == before);
                    }
                    Action::Fork { victim, full, copies } if victim < live.len() => {
                        let (table, hashes, family) = live[victim].clone();
                        let Some(last) = table.blocks().len().checked_sub(1) else { continue };
                        let full = full.min(last);
                        let had_room = manager.num_used() < manager.num_blocks();
                        let (forked, copy) = manager.fork(&table, full, copies);
                        prop_assert_eq!(&forked.blocks()[..full], &table.blocks()[..full]);
                        prop_assert_eq!(copy.is_some(), copies && had_room);
                        if let Some((from, to)) = copy {
                            prop_assert_eq!(from, table.blocks()[full]);
                            prop_assert_eq!(&forked.blocks()[full..], &[to]);
                        }
                        let hashes = hashes[..full.min(hashes.len())].to_vec();
                        live.push((forked, hashes, family));
                    }
                    Action::Release { victim } if victim < live.len() => {
                        manager.release(&mut live.swap_remove(victim).0);
                    }
                    _ => {}
                }
                let mut references = HashMap::new();
                for block in live.iter().flat_map(|(table, ..)| table.blocks()) {
                    *references.entry(*block).or_insert(0) += 1;
                }
                manager.pool.check(&references);
                manager.snapshots.check(|hash| manager.pool.lookup(hash).is_some());
                manager.continuations.check(|hash| manager.pool.lookup(hash).is_some());
            }
            for (mut table, ..) in live {
                manager.release(&mut table);
            }
            prop_assert_eq!(manager.num_used(), 0);
        }
    }

    #[test]
    fn a_released_prefix_is_found_again() {
        let tokens: Vec<u32> = (0..96).collect();
        let hashes = chain(&tokens);
        let mut manager = KvCacheManager::new(8, true);
        let mut table = BlockTable::default();
        assert!(manager.allocate(&mut table, &[], 96));
        for (index, hash) in hashes.iter().enumerate() {
            manager.publish(&table, index, *hash);
        }
        let first = table.blocks().to_vec();
        manager.release(&mut table);
        assert_eq!(manager.match_prefix(&hashes), 3);
        assert!(manager.allocate(&mut table, &hashes[..2], 96));
        assert_eq!(table.blocks()[..2], first[..2]);
        assert_ne!(table.blocks()[2], first[2]);
    }

    #[test]
    fn a_part_of_a_block_is_found_until_a_longer_one_replaces_it() {
        let root = BlockHash::root(None);
        let tokens: Vec<u32> = (0..32).collect();
        let mut manager = KvCacheManager::new(2, true);
        let [mut first, mut second] = [BlockTable::default(), BlockTable::default()];
        assert!(manager.allocate(&mut first, &[], 20));
        manager.publish_part(&first, 0, root, &tokens[..LEAST_COPIED - 1]);
        assert_eq!(manager.match_part(root, &tokens), None, "too few are worth no copy");
        manager.publish_part(&first, 0, root, &tokens[..20]);
        let block = first.blocks()[0];
        manager.release(&mut first);
        assert_eq!(manager.match_part(root, &tokens), Some((block, 20)));
        assert_eq!(manager.match_part(root, &tokens[..11]), Some((block, 11)));
        assert!(manager.allocate(&mut second, &[], 32));
        let hash = root.chain(&tokens);
        manager.publish(&second, 0, hash);
        manager.add_tokens(hash, root, &tokens);
        let full = second.blocks()[0];
        assert_ne!(full, block);
        assert_eq!(manager.match_part(root, &tokens[..20]), Some((full, 20)));
        manager.publish_part(&second, 0, root, &tokens[..20]);
        assert_eq!(manager.pool.next_evicted(), None, "the shorter one is gone");
        manager.release(&mut second);
        assert!(manager.allocate(&mut first, &[], 64));
        assert_eq!(manager.match_part(root, &tokens), None, "evicted");
    }

    #[test]
    fn a_snapshot_goes_with_its_block_and_not_with_others() {
        let hashes = chain(&(0..128).collect::<Vec<_>>());
        let mut manager = KvCacheManager::new(4, true).with_snapshots(2);
        let mut table = BlockTable::default();
        assert!(manager.allocate(&mut table, &[], 128));
        assert_eq!(manager.add_snapshot(hashes[1], None), None, "not cached yet");
        for (index, hash) in hashes.iter().enumerate() {
            manager.publish(&table, index, *hash);
        }
        let rows = [hashes[1], hashes[3]].map(|hash| manager.add_snapshot(hash, None).unwrap());
        assert_eq!(manager.match_snapshot(&hashes), 4);
        assert_eq!(manager.match_snapshot(&hashes[..3]), 2);
        assert_eq!(manager.match_snapshot(&hashes[..1]), 0);
        manager.release(&mut table);
        // The last blocks are evicted first.
        assert!(manager.allocate(&mut table, &[], 64));
        assert_eq!(manager.match_prefix(&hashes), 2);
        assert_eq!(manager.match_snapshot(&hashes[..2]), 2);
        assert_eq!(manager.use_snapshot(hashes[3]), None);
        assert_eq!(manager.use_snapshot(hashes[1]), Some(rows[0]));
        let next = chain(&[5; 64]);
        manager.publish(&table, 0, next[0]);
        manager.publish(&table, 1, next[1]);
        assert_eq!(manager.add_snapshot(next[0], None), Some(rows[1]));
        assert_eq!(manager.add_snapshot(next[0], None), None, "known already");
        // Of two rows the replaced snapshot's is taken, though it was used last.
        assert_eq!(manager.add_snapshot(next[1], Some(next[0])), Some(rows[1]));
        assert_eq!(manager.use_snapshot(hashes[1]), Some(rows[0]));
    }

    #[test]
    fn without_prefix_cache_nothing_matches() {
        let hashes = chain(&[1; 64]);
        let mut manager = KvCacheManager::new(4, false);
        let mut table = BlockTable::default();
        assert!(manager.allocate(&mut table, &[], 64));
        manager.publish(&table, 0, hashes[0]);
        assert_eq!(manager.match_prefix(&hashes), 0);
    }
}
