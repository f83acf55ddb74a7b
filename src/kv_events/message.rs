//! Batches of events as MessagePack, in the form of vLLM's `EventBatch`, `BlockStored`, `BlockRemoved`
//! and `AllBlocksCleared` (`vllm/distributed/kv_events.py`, version 0.32): a batch is an array, events
//! are maps with their class under `type`, and fields that have a default are left out where they have
//! it.
//!
//! Hashes are the last 64 bits of ours as a number, which is vLLM's default too. Blocks of the pool are
//! of `group_idx` 0 and complete. Two things are told by hash alone, as vLLM tells of what it has only
//! the hash of (no tokens, `block_size` 0): content of the tiers behind the pool, and, of `group_idx` 1
//! and kind `mamba`, the recurrent states behind blocks, without which hybrid models can't resume there.

use serde::Serialize;

use super::sender::Change;
use crate::kv_cache::BLOCK_SIZE;
use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::content::Content;
use crate::kv_cache::events::{BlockKeys, CacheEvent, StoredBlock};
use crate::metrics::kv_tiers::KvTier;

/// The pool of the device that computes is vLLM's first tier, on every device.
const POOL: &str = "GPU";
/// vLLM's names for what stands behind the pool.
fn medium(tier: KvTier) -> &'static str {
    match tier {
        KvTier::Host => "CPU",
        KvTier::Disk => "STORAGE",
    }
}

/// Encodes a batch that happened at `seconds` since 1970.
///
/// # Errors
/// Never for batches of this form: the buffer grows, and all types are known to MessagePack.
pub fn encode(seconds: f64, change: &Change) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    let events = match change {
        Change::Pool(events) => of_pool(events),
        Change::Behind(tier, changes) => of_tier(medium(*tier), changes),
        Change::Cleared => vec![Event::AllBlocksCleared],
    };
    let mut bytes = Vec::new();
    let mut serializer = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
    (seconds, events, RANK).serialize(&mut serializer)?;
    Ok(bytes)
}

/// One engine is the only one of its kind.
const RANK: u32 = 0;

#[derive(Debug, Serialize)]
#[serde(tag = "type")]
enum Event<'a> {
    BlockStored(Stored<'a>),
    BlockRemoved { block_hashes: Vec<u64>, medium: &'static str, group_idx: u32 },
    AllBlocksCleared,
}

#[derive(Debug, Serialize)]
struct Stored<'a> {
    block_hashes: Vec<u64>,
    parent_block_hash: Option<u64>,
    token_ids: Vec<u32>,
    block_size: usize,
    lora_id: Option<u64>,
    medium: &'static str,
    lora_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_keys: Option<Vec<Option<Vec<Key<'a>>>>>,
    group_idx: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_cache_spec_kind: Option<&'static str>,
}

/// What the hash of a block depends on besides tokens.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Key<'a> {
    Text(&'a str),
    /// A picture's digest in hex, and where it begins in the block.
    Picture(String, i64),
}

fn number(hash: BlockHash) -> u64 {
    let bytes = hash.bytes();
    u64::from_be_bytes(bytes[8..].try_into().expect("a hash has 16 bytes"))
}

fn group(content: Content) -> u32 {
    match content {
        Content::Block(_) => 0,
        Content::Snapshot(_) => 1,
    }
}

fn of_pool(events: &[CacheEvent]) -> Vec<Event<'_>> {
    let mut told = Vec::new();
    let mut last: Option<&StoredBlock> = None;
    for event in events {
        let before = last.take();
        match event {
            CacheEvent::Stored(block) => {
                last = Some(block);
                match (told.last_mut(), before) {
                    (Some(Event::BlockStored(stored)), Some(before)) if follows(before, block) => {
                        stored.append(block);
                    }
                    _ => told.push(Event::BlockStored(Stored::of(block))),
                }
            }
            CacheEvent::StoredSnapshot(hash) => {
                told.push(Event::BlockStored(Stored::by_hash(Content::Snapshot(*hash), POOL)));
            }
            CacheEvent::Removed(content) => remove(&mut told, *content, POOL),
        }
    }
    told
}

fn of_tier<'a>(medium: &'static str, changes: &[(Content, bool)]) -> Vec<Event<'a>> {
    let mut told = Vec::new();
    for (content, is_there) in changes {
        if *is_there {
            told.push(Event::BlockStored(Stored::by_hash(*content, medium)));
        } else {
            remove(&mut told, *content, medium);
        }
    }
    told
}

/// Whether a block continues the one before it in the same sequence.
fn follows(before: &StoredBlock, block: &StoredBlock) -> bool {
    block.parent == Some(before.hash) && block.keys.adapter == before.keys.adapter
}

/// Adds to the removals that the events end with, or begins new ones.
fn remove(told: &mut Vec<Event<'_>>, content: Content, at: &'static str) {
    let (hash, group) = (number(content.hash()), group(content));
    match told.last_mut() {
        Some(Event::BlockRemoved { block_hashes, medium, group_idx })
            if *medium == at && *group_idx == group =>
        {
            block_hashes.push(hash);
        }
        _ => told.push(Event::BlockRemoved {
            block_hashes: vec![hash],
            medium: at,
            group_idx: group,
        }),
    }
}

impl<'a> Stored<'a> {
    fn of(block: &'a StoredBlock) -> Self {
        let adapter = block.keys.adapter.as_ref();
        Self {
            block_hashes: vec![number(block.hash)],
            parent_block_hash: block.parent.map(number),
            token_ids: block.tokens.clone(),
            block_size: BLOCK_SIZE,
            // 0 stands for no adapter with some who read it.
            lora_id: adapter.map(|(_, id)| id + 1),
            medium: POOL,
            lora_name: adapter.map(|(name, _)| name.as_ref()),
            extra_keys: keys(&block.keys).map(|keys| vec![Some(keys)]),
            group_idx: 0,
            kv_cache_spec_kind: Some("full_attention"),
        }
    }

    fn append(&mut self, block: &'a StoredBlock) {
        let keys = keys(&block.keys);
        let count = self.block_hashes.len();
        if keys.is_some() && self.extra_keys.is_none() {
            self.extra_keys = Some((0..count).map(|_| None).collect());
        }
        if let Some(all) = &mut self.extra_keys {
            all.push(keys);
        }
        self.block_hashes.push(number(block.hash));
        self.token_ids.extend(&block.tokens);
    }

    fn by_hash(content: Content, medium: &'static str) -> Self {
        let is_snapshot = matches!(content, Content::Snapshot(_));
        Self {
            block_hashes: vec![number(content.hash())],
            parent_block_hash: None,
            token_ids: Vec::new(),
            block_size: 0,
            lora_id: None,
            medium,
            lora_name: None,
            extra_keys: None,
            group_idx: group(content),
            kv_cache_spec_kind: is_snapshot.then_some("mamba"),
        }
    }
}

/// The keys of a block in vLLM's order: adapter, pictures, salt.
fn keys(keys: &BlockKeys) -> Option<Vec<Key<'_>>> {
    let BlockKeys { adapter, salt, long, pictures } = keys;
    let picture = |(digest, at): &([u8; 16], i64)| {
        Key::Picture(format!("{:032x}", u128::from_be_bytes(*digest)), *at)
    };
    let all: Vec<Key<'_>> = adapter
        .iter()
        .map(|(name, _)| Key::Text(name))
        .chain(pictures.iter().map(picture))
        .chain(salt.iter().map(|salt| Key::Text(salt)))
        .chain(long.then_some(Key::Text(LONG)))
        .collect();
    (!all.is_empty()).then_some(all)
}

/// Marks sequences that are computed with the rotary frequencies of long ones, and share nothing with
/// shorter ones.
const LONG: &str = "sconce:long";
