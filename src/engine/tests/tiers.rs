//! Engines with host memory behind the pool, alone and before a folder.

use super::disk::{EVERY_MEMORY, cached, end, metric, on_disk, wait_for};
use super::*;
use crate::kv_disk::gate::Gate;

/// What a block of the tests' models takes in a tier.
const STORED: u64 = 8 * BLOCK_SIZE as u64 + 64;

fn with_host(config: EngineConfig, blocks: u64) -> EngineConfig {
    EngineConfig { kv_host_bytes: Some(blocks * STORED), ..config }
}

fn start(memory: Memory, config: &EngineConfig) -> (Running, JoinHandle<()>) {
    start_on(memory, config, Duration::ZERO, Arc::new(Disk))
}

#[test]
fn what_left_the_pool_comes_back_from_host_memory() {
    for memory in EVERY_MEMORY {
        let asked = |seed| request(prompt(seed, 300), 10, 0);
        let cold = start_with(memory, &config(64), Duration::ZERO);
        let expected = cached(&cold, asked(1)).0;
        let engine = start(memory, &with_host(config(12), 1000));
        assert_eq!(cached(&engine.0, asked(1)), (expected.clone(), 0), "{memory:?}");
        // There is room for one of them.
        assert_eq!(cached(&engine.0, asked(2)).1, 0, "{memory:?}");
        assert_eq!(cached(&engine.0, asked(1)), (expected, 288), "{memory:?}");
        // Without blocks there are states alone, for which the pool has room.
        if memory != Memory::StateAlone {
            assert!(metric(&engine.0, "sconce:kv_host_loaded_blocks_total") > 0, "{memory:?}");
        }
        assert_eq!(metric(&engine.0, "sconce:kv_disk_stored_blocks_total"), 0);
        engine.0.assert_idle();
        end(engine);
    }
}

#[test]
fn a_prompt_that_is_partly_in_host_memory_and_partly_on_disk_is_found_whole() {
    let folder = tempfile::tempdir().unwrap();
    // All of one prompt, and the beginning of another.
    let engine = start(Memory::Blocks, &with_host(on_disk(folder.path(), 12), 14));
    let asked = |seed| request(prompt(seed, 300), 10, 0);
    let total = |tier: &str, what: &str| format!("sconce:kv_{tier}_{what}_blocks_total");
    let expected = cached(&engine.0, asked(1)).0;
    cached(&engine.0, asked(2));
    for tier in ["host", "disk"] {
        wait_for(&engine.0, &total(tier, "stored"), 18);
    }
    assert_eq!(cached(&engine.0, asked(1)), (expected.clone(), 288));
    let loaded = ["host", "disk"].map(|tier| metric(&engine.0, &total(tier, "loaded")));
    assert!(loaded[0] > 0 && loaded[1] > 0 && loaded[0] + loaded[1] <= 9, "{loaded:?}");
    // What came from the disk is in host memory again.
    wait_for(&engine.0, &total("host", "stored"), 18 + loaded[1]);
    end(engine);
}

#[test]
fn host_memory_answers_while_the_disk_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = with_host(on_disk(folder.path(), 12), 1000);
    config.kv_disk.as_mut().unwrap().patience = Duration::from_millis(20);
    let slow = Arc::new(Gate::default());
    let engine = start_on(Memory::Blocks, &config, Duration::ZERO, slow.clone());
    slow.set_closed(true);
    let asked = |seed| request(prompt(seed, 300), 10, 0);
    let expected = cached(&engine.0, asked(1)).0;
    cached(&engine.0, asked(2));
    assert_eq!(cached(&engine.0, asked(1)), (expected, 288));
    slow.set_closed(false);
    end(engine);
}

#[test]
fn conversations_in_turn_find_what_the_pool_has_no_room_for() {
    for memory in [Memory::Blocks, Memory::State] {
        let hits = |config: &EngineConfig| {
            let engine = start(memory, config);
            let mut said: Vec<Vec<u32>> = (0..50).map(|seed| prompt(seed, 150)).collect();
            let (mut found, mut asked, mut all) = (0, 0, Vec::new());
            for turn in 0..3 {
                for tokens in &mut said {
                    let (answer, hit) = cached(&engine.0, request(tokens.clone(), 20, turn));
                    found += hit;
                    asked += tokens.len();
                    tokens.extend(&answer.0);
                    tokens.extend(prompt(turn as u32 + 100, 10));
                    all.push(answer);
                }
            }
            engine.0.assert_idle();
            end(engine);
            (100 * found / asked, all)
        };
        // Room for five of them.
        let (without, expected) = hits(&config(40));
        assert_eq!(without, 0, "{memory:?}: percent of the tokens");
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let on_disk = |folder: &tempfile::TempDir| on_disk(folder.path(), 40);
        let tiers = [
            ("a folder", on_disk(&folder)),
            ("host memory", with_host(config(40), 10_000)),
            ("host memory for some before a folder", with_host(on_disk(&other), 200)),
        ];
        for (case, config) in tiers {
            let (with, answers) = hits(&config);
            assert_eq!(answers, expected, "{memory:?}, {case}");
            // Of a third of the tokens nobody has seen anything yet, and states are kept at some places.
            assert!(with >= 50, "{memory:?}, {case}: {with} percent of the tokens");
        }
    }
}
