//! Who hears of all events knows what is cached.

use std::collections::HashSet;

use super::*;
use crate::kv_cache::events::{BlockKeys, CacheEvent};
use crate::scheduler::media::MediaSpan;

/// A router's view of the cache.
#[derive(Default)]
struct Mirror {
    blocks: HashSet<BlockHash>,
    snapshots: HashSet<BlockHash>,
}

impl Mirror {
    /// Applies events, each of which must be new.
    fn apply(&mut self, events: Vec<CacheEvent>) {
        for event in events {
            let new = match &event {
                CacheEvent::Stored(block) => {
                    let parent = block.parent.unwrap_or_else(|| BlockHash::root(None));
                    assert_eq!(block.hash, parent.chain(&block.tokens));
                    self.blocks.insert(block.hash)
                }
                CacheEvent::StoredSnapshot(hash) => self.snapshots.insert(*hash),
                CacheEvent::Removed(Content::Block(hash)) => self.blocks.remove(hash),
                CacheEvent::Removed(Content::Snapshot(hash)) => self.snapshots.remove(hash),
            };
            assert!(new, "{event:?} was told before, or never");
        }
    }

    /// Tokens of a prompt that a router would say are cached.
    fn cached(&self, prompt: &[u32]) -> usize {
        let mut hash = BlockHash::root(None);
        let blocks = prompt[..prompt.len() - 1].chunks_exact(BLOCK_SIZE).take_while(|tokens| {
            hash = hash.chain(tokens);
            self.blocks.contains(&hash)
        });
        blocks.count() * BLOCK_SIZE
    }
}

fn told(num_blocks: usize, max_num_seqs: usize) -> Scheduler {
    let config = SchedulerConfig {
        fixed_rope_length: None,
        keeps_state: false,
        lookahead: false,
        num_slots: max_num_seqs,
        max_num_seqs,
        max_num_batched_tokens: 64,
        max_model_len: num_blocks * BLOCK_SIZE,
    };
    Scheduler::new(config, KvCacheManager::new(num_blocks, true).with_events())
}

proptest! {
    #[test]
    fn a_mirror_of_the_events_predicts_cached_tokens(
        requests in prop::collection::vec((0..4u64, 1..200usize, 1..80usize, 0..3usize), 1..40),
    ) {
        let mut scheduler = told(16, 4);
        let mut mirror = Mirror::default();
        let mut prompts = HashMap::new();
        for (id, (family, length, output, steps)) in (0..).zip(requests) {
            prompts.insert(SequenceId(id), prompt(family, length));
            scheduler.add(sequence(id, prompt(family, length), output));
            for _ in 0..steps * 40 {
                let alone = scheduler.num_running() == 0;
                let (planned, _) = step(&mut scheduler);
                for (index, (first, cached)) in planned.admitted.iter().enumerate() {
                    let predicted = mirror.cached(&prompts[first]);
                    let found = cached / BLOCK_SIZE * BLOCK_SIZE;
                    // Others may have evicted something in the same step.
                    prop_assert!(found <= predicted);
                    if alone && index == 0 {
                        prop_assert_eq!(found, predicted);
                    }
                }
                mirror.apply(scheduler.take_events());
                for hash in &mirror.blocks {
                    prop_assert!(scheduler.kv_cache().block(*hash).is_some());
                }
            }
        }
    }
}

#[test]
fn events_carry_what_a_block_depends_on() {
    let mut scheduler = told(16, 4);
    let mut asked = sequence(0, prompt(0, 2 * BLOCK_SIZE + 1), 1)
        .with_adapter(Some((AdapterId(3), [1; 16])))
        .with_adapter_name(Some("tales".into()));
    asked.cache_salt = Some("tenant".into());
    let span = MediaSpan::whole(30, [1, 4], [7; 16]);
    scheduler.add(asked.with_media([span].into()));
    step(&mut scheduler);
    step(&mut scheduler);
    let adapter = || Some(("tales".into(), 3));
    let first = BlockKeys {
        adapter: adapter(),
        salt: Some("tenant".into()),
        long: false,
        pictures: vec![([7; 16], 30)],
    };
    let second =
        BlockKeys { adapter: adapter(), pictures: vec![([7; 16], -2)], ..BlockKeys::default() };
    let stored = scheduler.take_events().into_iter().map(|event| match event {
        CacheEvent::Stored(block) => block,
        other => panic!("{other:?}"),
    });
    let stored: Vec<_> = stored.collect();
    assert_eq!(stored.iter().map(|block| &block.keys).collect::<Vec<_>>(), [&first, &second]);
    assert_eq!((stored[0].parent, stored[1].parent), (None, Some(stored[0].hash)));
    assert_eq!(stored[1].tokens, prompt(0, 64)[32..]);
}

#[test]
fn snapshots_are_told_beside_their_blocks_and_go_with_them() {
    let mut manager = KvCacheManager::new(2, true).with_snapshots(1).with_events();
    let mut table = BlockTable::default();
    assert!(manager.grow(&mut table, 2 * BLOCK_SIZE));
    let hash = BlockHash::root(None).chain(&[1; BLOCK_SIZE]);
    manager.publish(&table, 0, hash);
    assert!(manager.is_untold(hash));
    assert!(manager.add_snapshot(hash, None).is_some());
    assert_eq!(manager.take_events(), [CacheEvent::StoredSnapshot(hash)]);
    assert_eq!(manager.take_events(), []);
    manager.release(&mut table);
    assert!(manager.grow(&mut table, 2 * BLOCK_SIZE));
    // Nobody was told of the block itself.
    assert_eq!(manager.take_events(), [CacheEvent::Removed(Content::Snapshot(hash))]);
}
