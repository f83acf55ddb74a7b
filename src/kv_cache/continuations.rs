//! The tokens of cached blocks by the chain that they continue, to find one of which a sequence needs
//! only the first tokens.
//!
//! Hashes find blocks that are equal as a whole. Where a sequence parts from all known ones inside of a
//! block, or goes on behind a block that never became full, the block that has most of its next tokens
//! is found here, to be copied.

use std::collections::HashMap;

use super::block_hash::BlockHash;

/// Fewest tokens of a block that are worth a copy: prompts to one model often begin with the same few.
pub const LEAST_COPIED: usize = 4;

/// The tokens of a block, which may be fewer than fit.
#[derive(Clone, Debug)]
struct Content {
    opening: BlockHash,
    tokens: Box<[u32]>,
}

/// The hash of a chain and of the first [`LEAST_COPIED`] of the `tokens` that continue it: blocks with
/// less in common need not be told apart.
fn opening(parent: BlockHash, tokens: &[u32]) -> Option<BlockHash> {
    tokens.get(..LEAST_COPIED).map(|first| parent.part(first))
}

/// What is known to follow which chains.
#[derive(Clone, Debug, Default)]
pub struct Continuations {
    contents: HashMap<BlockHash, Content>,
    // The contents with each opening, in the order in which they were added.
    by_opening: HashMap<BlockHash, Vec<BlockHash>>,
}

impl Continuations {
    /// Adds a cached block: its hash, the chain that it continues, and its tokens.
    pub fn add(&mut self, hash: BlockHash, parent: BlockHash, tokens: &[u32]) {
        let Some(opening) = opening(parent, tokens) else { return };
        let content = Content { opening, tokens: tokens.into() };
        if self.contents.insert(hash, content).is_none() {
            self.by_opening.entry(opening).or_default().push(hash);
        }
    }

    /// Removes a block that is evicted, if it was added.
    pub fn remove(&mut self, hash: BlockHash) {
        let Some(Content { opening, .. }) = self.contents.remove(&hash) else { return };
        let Some(siblings) = self.by_opening.get_mut(&opening) else { return };
        siblings.retain(|sibling| *sibling != hash);
        if siblings.is_empty() {
            self.by_opening.remove(&opening);
        }
    }

    /// The blocks behind this chain that begin as `tokens` do, with their own.
    fn siblings(
        &self,
        parent: BlockHash,
        tokens: &[u32],
    ) -> impl Iterator<Item = (BlockHash, &[u32])> {
        let opening = opening(parent, tokens);
        let hashes = opening.and_then(|opening| self.by_opening.get(&opening));
        hashes.into_iter().flatten().map(|hash| (*hash, &*self.contents[hash].tokens))
    }

    /// The block behind this chain that begins with most of `tokens`, and with how many; none where
    /// these are too few to be worth a copy.
    pub fn longest(&self, parent: BlockHash, tokens: &[u32]) -> Option<(BlockHash, usize)> {
        let mut longest = None;
        for (hash, known) in self.siblings(parent, tokens) {
            let common = known.iter().zip(tokens).take_while(|(one, other)| one == other).count();
            if common > longest.map_or(0, |(_, most)| most) {
                longest = Some((hash, common));
            }
        }
        longest
    }

    /// The blocks behind this chain all of whose tokens are the first ones of `tokens`, which have
    /// more.
    pub fn beginnings(&self, parent: BlockHash, tokens: &[u32]) -> Vec<BlockHash> {
        let begins = |known: &[u32]| known.len() < tokens.len() && tokens.starts_with(known);
        let siblings = self.siblings(parent, tokens).filter(|(_, known)| begins(known));
        siblings.map(|(hash, _)| hash).collect()
    }

    /// Checks that all blocks are `cached`, and that each is listed once; for tests.
    #[cfg(test)]
    pub(super) fn check(&self, cached: impl Fn(BlockHash) -> bool) {
        let listed: Vec<_> = self.by_opening.values().flatten().collect();
        assert_eq!(listed.len(), self.contents.len());
        for hash in listed {
            assert!(self.contents.contains_key(hash) && cached(*hash));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_with_most_of_the_tokens_is_found() {
        let root = BlockHash::root(None);
        let mut known = Continuations::default();
        let with = |own: &[u32]| [&[1, 2, 3, 4, 5, 6, 7, 8][..], own].concat();
        let contents = [with(&[3]), with(&[4, 5]), vec![6; 20], with(&[4])];
        let hashes = contents.each_ref().map(|tokens| root.chain(tokens));
        for (hash, tokens) in hashes.iter().zip(&contents) {
            known.add(*hash, root, tokens);
        }
        assert_eq!(known.longest(root, &with(&[4, 5, 6])), Some((hashes[1], 10)));
        assert_eq!(known.longest(root, &with(&[9])), Some((hashes[0], 8)));
        assert_eq!(known.longest(root, &with(&[])[..LEAST_COPIED - 1]), None);
        assert_eq!(known.longest(root, &[6; 30]), Some((hashes[2], 20)));
        assert_eq!(known.longest(hashes[0], &contents[0]), None);
        assert_eq!(known.beginnings(root, &contents[1]), [hashes[3]]);
        known.remove(hashes[1]);
        assert_eq!(known.longest(root, &with(&[4, 5, 6])), Some((hashes[3], 9)));
        for hash in hashes {
            known.remove(hash);
        }
        assert_eq!(known.longest(root, &contents[0]), None);
        known.check(|_| false);
    }
}
