//! Hashes of the content of KV blocks: equal hashes mean equal tokens after equal prefixes.
//!
//! A chain of SHA-256, cut to 128 bits, so that two prompts can't be made to share a block. Knows
//! tokens as integers only.

use sha2::{Digest, Sha256};

/// The content of one full block and of everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash([u8; 16]);

impl BlockHash {
    /// The start of every chain with this salt; requests with different salts never share.
    pub fn root(salt: Option<&str>) -> Self {
        let mut hasher = Sha256::new();
        hasher.update([u8::from(salt.is_some())]);
        hasher.update(salt.unwrap_or_default().as_bytes());
        Self::cut(hasher)
    }

    /// The start of the chains whose KV is computed with an adapter, by the digest of what is in it.
    /// Blocks hash longer inputs, so these chains never collide with others.
    #[must_use]
    pub fn under_adapter(self, digest: [u8; 16]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        hasher.update(digest);
        Self::cut(hasher)
    }

    /// The start of the chains whose first tokens see each other, also those behind them, by the digest of these
    /// tokens. No other start nor block hashes inputs of this length.
    #[must_use]
    pub fn under_prefix(self, prefix: Self) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        hasher.update(prefix.0);
        hasher.update([0; 2]);
        Self::cut(hasher)
    }

    /// The start of the chains of sequences that are computed as long ones. Other starts and blocks
    /// hash longer inputs, so these chains never collide with others.
    #[must_use]
    pub fn of_long(self) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        Self::cut(hasher)
    }

    /// The hash of a full block of `tokens` that follows the blocks of `self`.
    #[must_use]
    pub fn chain(self, tokens: &[u32]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        for token in tokens {
            hasher.update(token.to_le_bytes());
        }
        Self::cut(hasher)
    }

    /// The hash of a full block of `tokens` in which pictures are `seen`: the digest of each, which of
    /// its tokens is the first in the block, and where in the block that is. Nothing else hashes inputs
    /// of such lengths, so it never is that of a block without pictures.
    #[must_use]
    pub fn chain_seeing(self, tokens: &[u32], seen: &[([u8; 16], u32, u32)]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        for token in tokens {
            hasher.update(token.to_le_bytes());
        }
        for (digest, first, at) in seen {
            hasher.update(digest);
            hasher.update(first.to_le_bytes());
            hasher.update(at.to_le_bytes());
        }
        Self::cut(hasher)
    }

    /// The hash of a block of fewer `tokens` than fit that follows the blocks of `self`. Nothing else
    /// hashes inputs of such lengths, so it never is that of a full block.
    #[must_use]
    pub fn part(self, tokens: &[u32]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        hasher.update([0]);
        for token in tokens {
            hasher.update(token.to_le_bytes());
        }
        Self::cut(hasher)
    }

    /// The hash as bytes, equal in every process and on every machine.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// The hash that has these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    fn cut(hasher: Sha256) -> Self {
        let digest = hasher.finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(bytes)
    }
}

/// How many blocks two chains have in common. Where two hashes are equal all before them are.
pub fn num_common(one: &[BlockHash], other: &[BlockHash]) -> usize {
    if one.first() != other.first() {
        return 0;
    }
    let (mut common, mut parted) = (0, one.len().min(other.len()) + 1);
    while parted - common > 1 {
        let middle = common.midpoint(parted);
        if one[middle - 1] == other[middle - 1] {
            common = middle;
        } else {
            parted = middle;
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_salt_prefix_and_tokens() {
        let root = BlockHash::root(None);
        assert_ne!(root, BlockHash::root(Some("")));
        assert_ne!(BlockHash::root(Some("a")), BlockHash::root(Some("b")));
        assert_eq!(root.chain(&[1, 2]), root.chain(&[1, 2]));
        assert_ne!(root.chain(&[1, 2]), root.chain(&[2, 1]));
        assert_ne!(root.chain(&[1, 2]), root.part(&[1, 2]));
        assert_ne!(root.part(&[1, 2]), root.part(&[1]));
        assert_ne!(root.chain(&[1]).chain(&[2]), root.chain(&[2]).chain(&[2]));
        let adapted = root.under_adapter([1; 16]);
        assert_ne!(adapted, root);
        assert_ne!(adapted, root.under_adapter([2; 16]));
        assert_ne!(adapted, BlockHash::root(Some("a")).under_adapter([1; 16]));
        assert_ne!(adapted.chain(&[1, 2]), root.chain(&[1, 2]));
    }

    #[test]
    fn depends_on_what_is_seen_and_where() {
        let root = BlockHash::root(None);
        let seen = |seen: &[_]| root.chain_seeing(&[1, 1], seen);
        let one = seen(&[([7; 16], 0, 1)]);
        assert_eq!(one, seen(&[([7; 16], 0, 1)]));
        for other in [([8; 16], 0, 1), ([7; 16], 1, 1), ([7; 16], 0, 0)] {
            assert_ne!(one, seen(&[other]));
        }
        assert_ne!(one, seen(&[([7; 16], 0, 1), ([7; 16], 0, 1)]));
        assert_eq!(seen(&[]), root.chain(&[1, 1]));
    }

    #[test]
    fn chains_have_in_common_what_their_tokens_have() {
        let chain = |tokens: &[u32]| -> Vec<BlockHash> {
            let next = |hash: &mut BlockHash, token: &u32| {
                *hash = hash.chain(&[*token]);
                Some(*hash)
            };
            tokens.iter().scan(BlockHash::root(None), next).collect()
        };
        let long = chain(&[1, 2, 3, 4, 5, 6, 7]);
        for common in 0..7 {
            let mut other = [1, 2, 3, 4, 5, 6, 7];
            other[common] = 9;
            assert_eq!(num_common(&long, &chain(&other)), common);
            assert_eq!(num_common(&long[..common], &long), common);
        }
        assert_eq!(num_common(&long, &long), 7);
        assert_eq!(num_common(&[], &[]), 0);
    }
}
