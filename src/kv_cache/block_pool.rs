//! The blocks themselves: each is free or referenced; free ones keep their content until evicted.
//!
//! Free blocks form one list in order of eviction: blocks without a hash first, then the least
//! recently used. Knows nothing of sequences.

use std::collections::HashMap;

use super::block_hash::BlockHash;

/// Index of a block in the pool.
pub type BlockId = u32;

const NONE: BlockId = BlockId::MAX;

#[derive(Clone, Debug)]
struct Block {
    references: u32,
    hash: Option<BlockHash>,
    // Neighbours in the free list, while `references` is 0.
    previous: BlockId,
    next: BlockId,
}

/// A fixed number of blocks.
#[derive(Clone, Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    cached: HashMap<BlockHash, BlockId>,
    // Ends of the free list; eviction takes the head.
    head: BlockId,
    tail: BlockId,
    num_free: usize,
}

impl BlockPool {
    /// A pool of free, empty blocks.
    pub fn new(num_blocks: usize) -> Self {
        let num_blocks = BlockId::try_from(num_blocks).unwrap_or(NONE).min(NONE - 1);
        let empty = Block { references: 0, hash: None, previous: NONE, next: NONE };
        let mut pool = Self {
            blocks: vec![empty; num_blocks as usize],
            cached: HashMap::new(),
            head: NONE,
            tail: NONE,
            num_free: 0,
        };
        (0..num_blocks).for_each(|block| pool.push_free(block));
        pool
    }

    /// Blocks in the pool.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether the pool has no blocks at all.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Blocks that nobody references, cached content or not.
    pub fn num_free(&self) -> usize {
        self.num_free
    }

    /// The block that holds this content, if it is not evicted yet.
    pub fn lookup(&self, hash: BlockHash) -> Option<BlockId> {
        self.cached.get(&hash).copied()
    }

    /// Whether nobody references this block.
    pub fn is_free(&self, block: BlockId) -> bool {
        self.blocks[block as usize].references == 0
    }

    /// The content that goes when the next block is allocated.
    pub fn next_evicted(&self) -> Option<BlockHash> {
        self.blocks.get(self.head as usize)?.hash
    }

    /// Takes a free block, whose content is evicted; `None` when all are referenced.
    pub fn allocate(&mut self) -> Option<BlockId> {
        let block = self.head;
        if block == NONE {
            return None;
        }
        self.unlink_free(block);
        if let Some(hash) = self.blocks[block as usize].hash.take() {
            self.cached.remove(&hash);
        }
        self.blocks[block as usize].references = 1;
        Some(block)
    }

    /// One more reference to a block whose content is cached.
    pub fn share(&mut self, block: BlockId) {
        if self.is_free(block) {
            self.unlink_free(block);
        }
        self.blocks[block as usize].references += 1;
    }

    /// Makes the content of a full block known. If a referenced block holds the same content already,
    /// that one stays the shared one and this block remains private. A free one gives its content up:
    /// this block will be evicted later. Returns whether this block is the shared one now.
    pub fn publish(&mut self, block: BlockId, hash: BlockHash) -> bool {
        if self.blocks[block as usize].hash.is_some() {
            return false;
        }
        if self.cached.contains_key(&hash) && !self.forget(hash) {
            return false;
        }
        self.cached.insert(hash, block);
        self.blocks[block as usize].hash = Some(hash);
        true
    }

    /// Makes a free block, if it holds this content, one that is evicted before others. Returns whether
    /// it did.
    pub fn forget(&mut self, hash: BlockHash) -> bool {
        let Some(block) = self.lookup(hash).filter(|block| self.is_free(*block)) else {
            return false;
        };
        self.cached.remove(&hash);
        self.unlink_free(block);
        self.blocks[block as usize].hash = None;
        self.push_free(block);
        true
    }

    /// Gives one reference back; the last one makes the block free.
    pub fn release(&mut self, block: BlockId) {
        let references = &mut self.blocks[block as usize].references;
        *references = references.checked_sub(1).expect("a released block is referenced");
        if *references == 0 {
            self.push_free(block);
        }
    }

    fn push_free(&mut self, block: BlockId) {
        self.num_free += 1;
        let is_cached = self.blocks[block as usize].hash.is_some();
        let (previous, next) = if is_cached { (self.tail, NONE) } else { (NONE, self.head) };
        self.blocks[block as usize].previous = previous;
        self.blocks[block as usize].next = next;
        match previous {
            NONE => self.head = block,
            other => self.blocks[other as usize].next = block,
        }
        match next {
            NONE => self.tail = block,
            other => self.blocks[other as usize].previous = block,
        }
    }

    fn unlink_free(&mut self, block: BlockId) {
        self.num_free -= 1;
        let Block { previous, next, .. } = self.blocks[block as usize];
        match previous {
            NONE => self.head = next,
            other => self.blocks[other as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            other => self.blocks[other as usize].previous = previous,
        }
    }

    /// Checks the free list and all counts; for tests.
    #[cfg(test)]
    pub(super) fn check(&self, references: &HashMap<BlockId, u32>) {
        let mut free = Vec::new();
        let mut at = self.head;
        while at != NONE {
            free.push(at);
            at = self.blocks[at as usize].next;
        }
        assert_eq!(free.len(), self.num_free, "free list length");
        for (id, block) in (0..).zip(&self.blocks) {
            let expected = references.get(&id).copied().unwrap_or(0);
            assert_eq!(block.references, expected, "references of block {id}");
            assert_eq!(block.references == 0, free.contains(&id), "block {id} is free xor used");
            if let Some(hash) = block.hash {
                assert_eq!(self.lookup(hash), Some(id), "hash of block {id}");
            }
        }
        let hashed = self.blocks.iter().filter(|block| block.hash.is_some()).count();
        assert_eq!(hashed, self.cached.len(), "every cached hash names a block");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(value: u32) -> BlockHash {
        BlockHash::root(None).chain(&[value])
    }

    #[test]
    fn evicts_unnamed_blocks_first_then_least_recently_used() {
        let mut pool = BlockPool::new(3);
        let taken: Vec<_> = (0..3).map(|_| pool.allocate().unwrap()).collect();
        assert_eq!(pool.allocate(), None);
        pool.publish(taken[0], hash(0));
        pool.publish(taken[1], hash(1));
        pool.release(taken[1]);
        pool.release(taken[0]);
        pool.release(taken[2]);
        assert_eq!(pool.allocate(), Some(taken[2]));
        assert_eq!(pool.allocate(), Some(taken[1]));
        assert_eq!(pool.lookup(hash(1)), None);
        assert_eq!(pool.lookup(hash(0)), Some(taken[0]));
    }

    #[test]
    fn shares_a_free_cached_block_without_losing_its_content() {
        let mut pool = BlockPool::new(2);
        let block = pool.allocate().unwrap();
        pool.publish(block, hash(7));
        pool.release(block);
        pool.share(block);
        pool.share(block);
        assert_eq!(pool.num_free(), 1);
        pool.release(block);
        assert_eq!(pool.num_free(), 1);
        pool.release(block);
        assert_eq!(pool.num_free(), 2);
        assert_eq!(pool.lookup(hash(7)), Some(block));
    }

    #[test]
    fn equal_content_keeps_one_shared_block() {
        let mut pool = BlockPool::new(2);
        let (first, second) = (pool.allocate().unwrap(), pool.allocate().unwrap());
        pool.publish(first, hash(1));
        pool.publish(second, hash(1));
        assert_eq!(pool.lookup(hash(1)), Some(first));
        pool.check(&HashMap::from([(first, 1), (second, 1)]));
        pool.release(second);
        assert_eq!(pool.next_evicted(), None, "a private block goes first");
    }

    #[test]
    fn content_that_is_computed_again_moves_to_the_younger_block() {
        let mut pool = BlockPool::new(3);
        let (first, second) = (pool.allocate().unwrap(), pool.allocate().unwrap());
        pool.publish(first, hash(1));
        pool.release(first);
        pool.publish(second, hash(1));
        assert_eq!(pool.lookup(hash(1)), Some(second));
        pool.check(&HashMap::from([(second, 1)]));
        assert_eq!(pool.allocate(), Some(first));
    }
}
