//! The tokens of cached blocks by the chain that they continue, to find one of which a sequence needs
//! only the first tokens.
//!
//! Hashes find blocks that are equal as a whole. Where a sequence parts from all known ones inside of a
//! block, or goes on behind a block that never became full, the block that has most of its next tokens
//! is found here, to be copied.

use std::collections::HashMap;

use super::block_hash::BlockHash;

/// The tokens of a block, which may be fewer than fit.
#[derive(Clone, Debug)]
struct Content {
    parent: BlockHash,
    tokens: Box<[u32]>,
}

/// What is known to follow which chains.
#[derive(Clone, Debug, Default)]
pub struct Continuations {
    contents: HashMap<BlockHash, Content>,
    // The contents that follow each chain, in the order in which they were added.
    after: HashMap<BlockHash, Vec<BlockHash>>,
}

impl Continuations {
    /// Adds a cached block: its hash, the chain that it continues, and its tokens.
    pub fn add(&mut self, hash: BlockHash, parent: BlockHash, tokens: &[u32]) {
        let content = Content { parent, tokens: tokens.into() };
        if self.contents.insert(hash, content).is_none() {
            self.after.entry(parent).or_default().push(hash);
        }
    }

    /// Removes a block that is evicted, if it was added.
    pub fn remove(&mut self, hash: BlockHash) {
        let Some(Content { parent, .. }) = self.contents.remove(&hash) else { return };
        let Some(siblings) = self.after.get_mut(&parent) else { return };
        siblings.retain(|sibling| *sibling != hash);
        if siblings.is_empty() {
            self.after.remove(&parent);
        }
    }

    /// The block behind this chain that begins with most of `tokens`, and with how many.
    pub fn longest(&self, parent: BlockHash, tokens: &[u32]) -> Option<(BlockHash, usize)> {
        let mut longest = None;
        for hash in self.after.get(&parent)? {
            let known = &self.contents[hash].tokens;
            let common = known.iter().zip(tokens).take_while(|(one, other)| one == other).count();
            if common > longest.map_or(0, |(_, most)| most) {
                longest = Some((*hash, common));
            }
        }
        longest
    }

    /// The blocks behind this chain all of whose tokens are the first ones of `tokens`, which have
    /// more.
    pub fn beginnings(&self, parent: BlockHash, tokens: &[u32]) -> Vec<BlockHash> {
        let is_beginning = |hash: &&BlockHash| {
            let known = &self.contents[*hash].tokens;
            known.len() < tokens.len() && tokens.starts_with(known)
        };
        self.after.get(&parent).into_iter().flatten().filter(is_beginning).copied().collect()
    }

    /// Checks that all blocks are `cached`, and that each is listed once; for tests.
    #[cfg(test)]
    pub(super) fn check(&self, cached: impl Fn(BlockHash) -> bool) {
        let listed: Vec<_> = self.after.values().flatten().collect();
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
        let contents: [&[u32]; 4] = [&[1, 2, 3], &[1, 2, 4, 5], &[6], &[1, 2, 4]];
        let hashes = contents.map(|tokens| root.chain(tokens));
        for (hash, tokens) in hashes.iter().zip(contents) {
            known.add(*hash, root, tokens);
        }
        assert_eq!(known.longest(root, &[1, 2, 4, 5, 6]), Some((hashes[1], 4)));
        assert_eq!(known.longest(root, &[1, 2, 9]), Some((hashes[0], 2)));
        assert_eq!(known.longest(root, &[7]), None);
        assert_eq!(known.longest(hashes[0], &[1]), None);
        assert_eq!(known.beginnings(root, &[1, 2, 4, 5]), [hashes[3]]);
        known.remove(hashes[1]);
        assert_eq!(known.longest(root, &[1, 2, 4, 5, 6]), Some((hashes[3], 3)));
        for hash in hashes {
            known.remove(hash);
        }
        assert_eq!(known.longest(root, &[1]), None);
        known.check(|_| false);
    }
}
