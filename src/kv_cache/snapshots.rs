//! Snapshots of recurrent states: which rows of the pool hold the state behind which block.
//!
//! A snapshot is named by the hash of the last block that its state has seen, so it depends on all
//! tokens up to there. The least recently used one is evicted. Knows rows as integers only.

use std::collections::{BTreeMap, HashMap};

use super::block_hash::BlockHash;

/// Index of a row of the pool.
pub type SnapshotId = u32;

#[derive(Clone, Copy, Debug)]
struct Snapshot {
    row: SnapshotId,
    // The time of its last use, the key in `by_use`.
    used: u64,
}

/// A fixed number of rows, each free or with the state behind a block.
#[derive(Clone, Debug, Default)]
pub struct SnapshotPool {
    kept: HashMap<BlockHash, Snapshot>,
    // By time of the last use; the first is evicted.
    by_use: BTreeMap<u64, BlockHash>,
    free: Vec<SnapshotId>,
    capacity: usize,
    // Counts uses.
    time: u64,
}

impl SnapshotPool {
    /// A pool of free rows.
    pub fn new(rows: usize) -> Self {
        let rows = SnapshotId::try_from(rows).unwrap_or(SnapshotId::MAX);
        Self { free: (0..rows).rev().collect(), capacity: rows as usize, ..Self::default() }
    }

    /// Rows, free ones and others.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether there is a snapshot behind this block.
    pub fn contains(&self, hash: BlockHash) -> bool {
        self.kept.contains_key(&hash)
    }

    /// The blocks that have snapshots behind them, in no order.
    pub fn hashes(&self) -> impl Iterator<Item = BlockHash> {
        self.kept.keys().copied()
    }

    /// The row of a snapshot.
    pub fn row(&self, hash: BlockHash) -> Option<SnapshotId> {
        self.kept.get(&hash).map(|snapshot| snapshot.row)
    }

    /// The row of a snapshot, which becomes the most recently used one.
    pub fn take(&mut self, hash: BlockHash) -> Option<SnapshotId> {
        let snapshot = self.kept.get_mut(&hash)?;
        self.by_use.remove(&snapshot.used);
        self.time += 1;
        snapshot.used = self.time;
        self.by_use.insert(self.time, hash);
        Some(snapshot.row)
    }

    /// A row for a snapshot that doesn't exist yet; the least recently used one is evicted where no
    /// row is free. `None` if there are no rows at all.
    pub fn add(&mut self, hash: BlockHash) -> Option<SnapshotId> {
        debug_assert!(!self.contains(hash), "a snapshot is added once");
        if self.free.is_empty()
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            self.remove(*oldest);
        }
        let row = self.free.pop()?;
        self.time += 1;
        self.kept.insert(hash, Snapshot { row, used: self.time });
        self.by_use.insert(self.time, hash);
        Some(row)
    }

    /// Frees the row of a snapshot, if there is one.
    pub fn remove(&mut self, hash: BlockHash) {
        if let Some(Snapshot { row, used }) = self.kept.remove(&hash) {
            self.by_use.remove(&used);
            self.free.push(row);
        }
    }

    /// Frees all rows.
    pub fn clear(&mut self) {
        *self = Self::new(self.capacity);
    }

    /// Checks that every row is free or one snapshot's, and that all of these are of `cached` blocks;
    /// for tests.
    #[cfg(test)]
    pub(super) fn check(&self, cached: impl Fn(BlockHash) -> bool) {
        let kept = self.kept.values().map(|snapshot| snapshot.row);
        let mut rows: Vec<_> = kept.chain(self.free.iter().copied()).collect();
        rows.sort_unstable();
        assert_eq!(rows, (0..).take(self.capacity).collect::<Vec<_>>(), "free xor kept");
        assert_eq!(self.by_use.len(), self.kept.len());
        for (hash, snapshot) in &self.kept {
            assert_eq!(self.by_use.get(&snapshot.used), Some(hash), "its last use");
            assert!(cached(*hash), "a snapshot has its block");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(value: u32) -> BlockHash {
        BlockHash::root(None).chain(&[value])
    }

    #[test]
    fn evicts_the_least_recently_used() {
        let mut pool = SnapshotPool::new(2);
        let first = pool.add(hash(1)).unwrap();
        let second = pool.add(hash(2)).unwrap();
        assert_ne!(first, second);
        assert_eq!(pool.take(hash(1)), Some(first));
        assert_eq!(pool.add(hash(3)), Some(second));
        assert_eq!(pool.take(hash(2)), None);
        assert_eq!((pool.take(hash(1)), pool.take(hash(3))), (Some(first), Some(second)));
        pool.check(|_| true);
    }

    #[test]
    fn a_removed_snapshot_gives_its_row_back() {
        let mut pool = SnapshotPool::new(2);
        pool.add(hash(1));
        let row = pool.add(hash(2));
        pool.remove(hash(2));
        pool.remove(hash(7));
        assert_eq!(pool.add(hash(3)), row);
        assert!(pool.contains(hash(1)));
        pool.clear();
        assert!(!pool.contains(hash(1)) && !pool.contains(hash(3)));
        pool.check(|_| true);
    }

    #[test]
    fn without_rows_nothing_is_kept() {
        let mut pool = SnapshotPool::new(0);
        assert_eq!(pool.add(hash(1)), None);
        assert!(!pool.contains(hash(1)));
    }
}
