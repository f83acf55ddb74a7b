//! Full blocks become known: to other sequences, to a slower tier, and to those who are told of the
//! cache.

use super::load_table::Loads;
use super::sequence::Sequence;
use crate::kv_cache::content::Content;
use crate::kv_cache::events::{BlockKeys, StoredBlock};
use crate::kv_cache::{BLOCK_SIZE, KvCacheManager};

impl Sequence {
    /// The full block at `index`, whose hash is known, as others are told of it.
    pub(super) fn stored_block(&self, index: usize) -> StoredBlock {
        let (start, end) = (index * BLOCK_SIZE, (index + 1) * BLOCK_SIZE);
        let adapter = self.adapter_name.clone().zip(self.adapter.map(|id| id.0));
        let inside = self.media.iter().filter(|span| span.offset < end && start < span.end());
        let signed = |position: usize| i64::try_from(position).unwrap_or(i64::MAX);
        let at = inside.map(|span| (span.digest, signed(span.offset) - signed(start)));
        StoredBlock {
            hash: self.known_hashes()[index],
            parent: index.checked_sub(1).map(|before| self.known_hashes()[before]),
            tokens: self.tokens[start..end].to_vec(),
            keys: BlockKeys {
                adapter,
                salt: self.cache_salt.clone().filter(|_| index == 0),
                long: self.is_long() && index == 0,
                pictures: at.collect(),
            },
        }
    }
}

/// Makes full blocks known whose KV was just written, and their tokens if parts of them are reused.
pub(super) fn full_blocks(
    sequence: &mut Sequence,
    kv_cache: &mut KvCacheManager,
    loads: &mut Loads,
    adds_tokens: bool,
) {
    let full = sequence.num_computed / BLOCK_SIZE;
    for index in sequence.num_published..full {
        let hash = sequence.hashes()[index];
        if kv_cache.publish(&sequence.table, index, hash) {
            loads.add(Content::Block(hash));
        }
        if kv_cache.is_untold(hash) {
            kv_cache.tell(sequence.stored_block(index));
        }
        if adds_tokens {
            let tokens = sequence.comparable(index * BLOCK_SIZE, (index + 1) * BLOCK_SIZE);
            if !tokens.is_empty() {
                kv_cache.add_tokens(hash, sequence.chain_before(index), tokens);
            }
        }
    }
    sequence.num_published = full;
}
