//! Engines that keep blocks in a folder: after a restart, beside each other, and on disks that fail.

use std::path::{Path, PathBuf};

use super::*;
use crate::config::KvDisk;
use crate::kv_disk::gate::Gate;

pub(super) const EVERY_MEMORY: [Memory; 3] = [Memory::Blocks, Memory::State, Memory::StateAlone];

pub(super) fn on_disk(folder: &Path, num_blocks: usize) -> EngineConfig {
    let disk =
        KvDisk { path: folder.to_owned(), max_bytes: 1 << 30, patience: Duration::from_hours(1) };
    EngineConfig { kv_disk: Some(disk), ..config(num_blocks) }
}

/// The answer, and the tokens that were found in the cache or on disk.
pub(super) fn cached(running: &Running, request: EngineRequest) -> (Answer, usize) {
    let (answer, end) = block_on(collect(running.handle.submit(request)));
    let Some(EngineOutput::Finished { stats, .. }) = end else { panic!("{end:?}") };
    (answer, stats.cached_tokens)
}

/// Ends an engine, which stores what it has.
pub(super) fn end((running, thread): (Running, JoinHandle<()>)) {
    drop(running);
    thread.join().unwrap();
}

pub(super) fn metric(running: &Running, name: &str) -> usize {
    let text = running.metrics.render();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

pub(super) fn wait_for(running: &Running, name: &str, least: usize) {
    for _ in 0..5000 {
        if metric(running, name) >= least {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("{name} never was {least}");
}

/// All files of blocks and snapshots.
fn stored_files(folder: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let inside = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let paths = inside.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().unwrap() != "json").collect();
    paths.sort();
    paths
}

#[test]
fn after_a_restart_all_full_blocks_are_cached_and_answers_are_the_same() {
    for memory in EVERY_MEMORY {
        let folder = tempfile::tempdir().unwrap();
        let start =
            || start_on(memory, &on_disk(folder.path(), 64), Duration::ZERO, Arc::new(Disk));
        let cold = start_with(memory, &config(64), Duration::ZERO);
        let asked = || request(prompt(1, 300), 40, 0);
        let expected = cached(&cold, asked()).0;
        let first = start();
        assert_eq!(cached(&first.0, asked()), (expected.clone(), 0), "{memory:?}");
        end(first);
        let second = start();
        assert_eq!(cached(&second.0, asked()), (expected.clone(), 288), "{memory:?}");
        // What was loaded is cached in memory like anything else.
        let (answer, hit) = cached(&second.0, asked());
        assert!(answer == expected && hit >= 288, "{memory:?}: {hit}");
        assert_eq!(metric(&second.0, "vllm:external_prefix_cache_hits_total"), 288);
        // The next turn goes on behind the answer, which was stored too.
        let next = [prompt(1, 300), expected.0, prompt(2, 20)].concat();
        let answer = answers(&cold, vec![request(next.clone(), 10, 0)]).remove(0);
        let (said, hit) = cached(&second.0, request(next, 10, 0));
        assert!(said == answer && hit >= 320, "{memory:?}: {hit}");
        second.0.assert_idle();
        end(second);
    }
}

#[test]
fn what_the_last_step_computed_is_stored_while_nobody_asks() {
    let folder = tempfile::tempdir().unwrap();
    let engine =
        start_on(Memory::Blocks, &on_disk(folder.path(), 64), Duration::ZERO, Arc::new(Disk));
    // The second block is full with the token before the last.
    cached(&engine.0, request(prompt(1, 63), 2, 0));
    wait_for(&engine.0, "sconce:kv_disk_blocks{", 2);
    end(engine);
}

#[test]
fn many_requests_after_a_restart_answer_as_each_does_alone() {
    let expected = alone();
    for memory in EVERY_MEMORY {
        for (case, blocks) in [("all at once", 64), ("with preemption", 12)] {
            let folder = tempfile::tempdir().unwrap();
            let config = on_disk(folder.path(), blocks);
            for round in 0..3 {
                let engine = start_on(memory, &config, Duration::ZERO, Arc::new(Disk));
                for _ in 0..2 {
                    assert_eq!(answers(&engine.0, requests()), expected, "{case} {memory:?}");
                }
                engine.0.assert_idle();
                let loaded = metric(&engine.0, "sconce:kv_disk_loaded_blocks_total");
                assert!(round == 0 || loaded > 0, "{case}, {memory:?}");
                end(engine);
            }
        }
    }
}

#[test]
fn adapters_and_salts_have_files_of_their_own() {
    use crate::engine::adapter::Adapter;
    let folder = tempfile::tempdir().unwrap();
    let config = on_disk(folder.path(), 64);
    let adapter = |size: usize| {
        let weights = crate::runner::Adapter::new(std::collections::HashMap::new(), size);
        Adapter::new("a", [size as u8; 16], weights)
    };
    let asked = |adapter: Option<Adapter>, salt: Option<&str>| EngineRequest {
        adapter,
        cache_salt: salt.map(str::to_owned),
        ..request(prompt(3, 70), 2, 0)
    };
    let all = || [(None, None), (Some(adapter(1)), None), (None, Some("tenant"))];
    let first = start_on(Memory::Blocks, &config, Duration::ZERO, Arc::new(Disk));
    let answers = all().map(|(adapter, salt)| cached(&first.0, asked(adapter, salt)));
    assert!(answers.iter().all(|(_, cached)| *cached == 0));
    end(first);
    let second = start_on(Memory::Blocks, &config, Duration::ZERO, Arc::new(Disk));
    for ((adapter, salt), (expected, _)) in all().into_iter().zip(answers) {
        assert_eq!(cached(&second.0, asked(adapter, salt)), (expected, 64));
    }
    assert_eq!(cached(&second.0, asked(Some(adapter(2)), None)).1, 0);
    end(second);
}

#[test]
fn torn_flipped_and_foreign_files_are_computed_again() {
    for memory in EVERY_MEMORY {
        let folder = tempfile::tempdir().unwrap();
        let config = on_disk(folder.path(), 64);
        let asked = || request(prompt(1, 300), 40, 0);
        let start = || start_on(memory, &config, Duration::ZERO, Arc::new(Disk));
        let first = start();
        let expected = cached(&first.0, asked()).0;
        end(first);
        let all = stored_files(folder.path());
        let contents: Vec<Vec<u8>> = all.iter().map(|path| std::fs::read(path).unwrap()).collect();
        for (index, (path, content)) in all.iter().zip(&contents).enumerate() {
            let mut changed = content.clone();
            match index % 4 {
                0 => changed.truncate(content.len() / 2),
                1 => *changed.last_mut().unwrap() ^= 1,
                2 => changed.clone_from(&contents[(index + 1) % contents.len()]),
                _ => changed.clear(),
            }
            std::fs::write(path, changed).unwrap();
        }
        let second = start();
        assert_eq!(cached(&second.0, asked()), (expected.clone(), 0), "{memory:?}");
        assert!(metric(&second.0, "sconce:kv_disk_corrupt_blocks_total") > 0);
        end(second);
        // Those of the prompt were removed and written anew; nobody asked for those of the answer.
        let third = start();
        assert_eq!(cached(&third.0, asked()), (expected, 288), "{memory:?}");
        end(third);
    }
}

#[test]
fn a_disk_that_does_not_answer_stops_nobody_else() {
    for memory in EVERY_MEMORY {
        let folder = tempfile::tempdir().unwrap();
        let config = on_disk(folder.path(), 64);
        let waits = || request(prompt(1, 300), 40, 0);
        let first = start_on(memory, &config, Duration::ZERO, Arc::new(Disk));
        let expected = cached(&first.0, waits()).0;
        end(first);
        let slow = Arc::new(Gate::default());
        let second = start_on(memory, &config, Duration::ZERO, slow.clone());
        slow.set_closed(true);
        let mut waiting = second.0.handle.submit(waits());
        // A whole answer of many steps, while the other waits for its blocks.
        let other = || request(prompt(7, 50), 100, 0);
        let steps = || metric(&second.0, "vllm:iteration_tokens_total_count");
        let before = steps();
        let (answer, hit) = cached(&second.0, other());
        assert_eq!((answer.0.len(), hit), (100, 0));
        assert_eq!(steps() - before, 100, "a step for each token");
        let early =
            block_on(async { tokio::time::timeout(Duration::ZERO, waiting.next()).await.is_ok() });
        assert!(!early, "it waits");
        slow.set_closed(false);
        let (answer, end_of) = block_on(collect(waiting));
        let Some(EngineOutput::Finished { stats, .. }) = end_of else { panic!("{end_of:?}") };
        assert_eq!((answer, stats.cached_tokens), (expected, 288), "{memory:?}");
        end(second);
    }
}

#[test]
fn a_prompt_does_not_wait_forever() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = on_disk(folder.path(), 64);
    let asked = || request(prompt(1, 300), 40, 0);
    let first = start_on(Memory::Blocks, &config, Duration::ZERO, Arc::new(Disk));
    let expected = cached(&first.0, asked()).0;
    end(first);
    config.kv_disk.as_mut().unwrap().patience = Duration::from_millis(20);
    let slow = Arc::new(Gate::default());
    let second = start_on(Memory::Blocks, &config, Duration::ZERO, slow.clone());
    slow.set_closed(true);
    // Alone, beside another that wants the same, and gone before anything came.
    let both = [second.0.handle.submit(asked()), second.0.handle.submit(asked())];
    drop(second.0.handle.submit(asked()));
    for stream in both {
        let (answer, _) = block_on(collect(stream));
        assert_eq!(answer, expected);
    }
    second.0.assert_idle();
    slow.set_closed(false);
    end(second);
}

#[test]
fn two_engines_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let config = on_disk(folder.path(), 64);
    let start = || start_on(Memory::Blocks, &config, Duration::ZERO, Arc::new(Disk));
    let (one, other) = (start(), start());
    let asked = |seed| request(prompt(seed, 300), 10, 0);
    let expected = cached(&one.0, asked(1));
    // The other looks at the folder every now and then.
    wait_for(&other.0, "sconce:kv_disk_blocks{", 9);
    assert_eq!(cached(&other.0, asked(1)), (expected.0, 288));
    end(one);
    end(other);
}
