//! Where the last tokens of a text occurred before: chains of equal n-grams, as the match finders of
//! LZ77 compressors have them (zlib's "deflate").

use std::cmp::Reverse;

/// Earlier occurrences that are compared.
const MOST_COMPARED: usize = 32;

/// Longest context that is compared.
pub(super) const MOST_COMMON: usize = 64;

/// Common tokens beyond which it doesn't matter how many there are, where the place is about known.
const DISTINCT: usize = 8;

/// No position.
const NONE: u32 = u32::MAX;

/// Tokens, and for every position the one before it whose preceding n-gram is equal.
#[derive(Clone, Debug)]
pub(super) struct MatchIndex {
    tokens: Vec<u32>,
    /// Tokens of an n-gram: what a context must have in common to be found.
    gram: usize,
    /// The last position of each hash; as many as a power of two.
    heads: Vec<u32>,
    /// For each position the one before it with the same hash.
    previous: Vec<u32>,
}

/// A place whose context is that of the text's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// Position of the token that followed there.
    pub(super) at: usize,
    /// Tokens before it that are equal, at most [`MOST_COMMON`].
    pub(super) length: usize,
}

impl MatchIndex {
    /// An empty index of n-grams of `gram` tokens, at least 1.
    pub(super) fn new(gram: usize) -> Self {
        Self { tokens: Vec::new(), gram, heads: vec![NONE; 64], previous: Vec::new() }
    }

    /// All tokens in order.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Appends tokens.
    pub(super) fn extend(&mut self, tokens: &[u32]) {
        for token in tokens {
            self.push(*token);
        }
    }

    /// Appends a token.
    pub(super) fn push(&mut self, token: u32) {
        let at = self.tokens.len();
        self.tokens.push(token);
        self.previous.push(NONE);
        if at >= self.heads.len() {
            self.rehash();
        } else {
            self.link(at);
        }
    }

    /// The place whose context has most in common with the end of `context`, the last of several;
    /// none with fewer tokens than an n-gram has.
    pub(super) fn longest(&self, context: &[u32]) -> Option<Match> {
        self.matches(context).max_by_key(|found| (found.length, found.at))
    }

    /// The place whose context is that of the end of `context`, so far as tells texts apart, and that is
    /// nearest to position `next`.
    pub(super) fn nearest(&self, context: &[u32], next: usize) -> Option<Match> {
        let rank = |found: &Match| (found.length.min(DISTINCT), Reverse(found.at.abs_diff(next)));
        self.matches(context).max_by_key(rank)
    }

    /// The last places whose contexts end like `context`.
    fn matches(&self, context: &[u32]) -> impl Iterator<Item = Match> {
        let last = context.len().checked_sub(self.gram).map(|first| &context[first..]);
        let first = last.map_or(NONE, |last| self.heads[self.slot(last)]);
        let chained = |at: &u32| self.previous.get(*at as usize).copied();
        let places = std::iter::successors(Some(first), chained);
        let places = places.take_while(|at| *at != NONE).take(MOST_COMPARED);
        let found = places.map(|at| Match {
            at: at as usize,
            length: common_suffix(&self.tokens[..at as usize], context),
        });
        found.filter(|found| found.length >= self.gram)
    }

    /// Puts a position at the head of the chain of the n-gram before it.
    fn link(&mut self, at: usize) {
        let Some(first) = at.checked_sub(self.gram) else { return };
        let slot = self.slot(&self.tokens[first..at]);
        let position = u32::try_from(at).expect("texts have fewer than 2^32 tokens");
        self.previous[at] = std::mem::replace(&mut self.heads[slot], position);
    }

    /// Doubles the number of chains.
    fn rehash(&mut self) {
        self.heads = vec![NONE; 2 * self.heads.len()];
        (0..self.tokens.len()).for_each(|at| self.link(at));
    }

    fn slot(&self, gram: &[u32]) -> usize {
        let hash = gram.iter().fold(0_u64, |hash, token| {
            (hash ^ u64::from(*token)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
        });
        usize::try_from(hash & (self.heads.len() as u64 - 1)).expect("below the number of chains")
    }
}

/// How many of the last tokens are equal, at most [`MOST_COMMON`].
fn common_suffix(one: &[u32], other: &[u32]) -> usize {
    let pairs = one.iter().rev().zip(other.iter().rev()).take(MOST_COMMON);
    pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index(tokens: &[u32]) -> MatchIndex {
        let mut index = MatchIndex::new(3);
        index.extend(tokens);
        index
    }

    #[test]
    fn the_longest_context_wins_and_then_the_last() {
        let tokens = [1, 2, 3, 10, 9, 1, 2, 3, 11, 8, 2, 3, 12, 7, 9, 1, 2, 3];
        let index = index(&tokens);
        assert_eq!(index.longest(&tokens), Some(Match { at: 8, length: 4 }));
        assert_eq!(index.longest(&[5, 1, 2, 3]), Some(Match { at: 8, length: 3 }));
        assert_eq!(index.longest(&[5, 2, 3]), None);
        assert_eq!(index.longest(&[2, 3]), None);
        assert_eq!(index.longest(&[8, 2, 3]), Some(Match { at: 12, length: 3 }));
    }

    proptest! {
        #[test]
        fn finds_what_a_search_of_all_places_finds(
            tokens in prop::collection::vec(0_u32..4, 0..200),
        ) {
            let index = index(&tokens);
            let found = index.longest(&tokens);
            let all = (1..tokens.len()).map(|at| (common_suffix(&tokens[..at], &tokens), at));
            let best = all.filter(|(length, _)| *length >= 3).max();
            // Only so many places are compared.
            match (found, best) {
                (Some(found), Some((length, _))) => {
                    let own = common_suffix(&tokens[..found.at], &tokens);
                    prop_assert_eq!(own, found.length);
                    prop_assert!((3..=length).contains(&found.length));
                }
                (found, best) => prop_assert_eq!(found.is_some(), best.is_some()),
            }
        }
    }
}
