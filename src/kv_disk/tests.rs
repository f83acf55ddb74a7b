//! The store over real folders, and over ones that answer when the test says so.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use super::files::{Disk, Files};
use super::gate::Gate;
use super::namespace::{About, Namespace};
use super::{FileKey, Loaded, Store, StoreConfig, inventory};
use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::content::Content;
use crate::metrics::kv_tiers::KvTier;
use crate::metrics::{self, MetricsHandle};

const NAMESPACE: [u8; 16] = [9; 16];

struct Opened {
    store: Store,
    metrics: MetricsHandle,
    gate: Arc<Gate>,
    woken: Arc<AtomicUsize>,
}

fn open_with(root: &Path, max_bytes: u64, queued_bytes: usize) -> Opened {
    let (gate, woken) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
    let metrics = metrics::install("test");
    let text = || "test".to_owned();
    let count = woken.clone();
    let store = Store::open(StoreConfig {
        root: root.to_owned(),
        max_bytes,
        namespace: Namespace::from_bytes(NAMESPACE),
        about: About {
            model: text(),
            kv_cache_dtype: text(),
            computed_on: text(),
            version: text(),
        },
        block_bytes: 1000,
        queued_bytes,
        files: gate.clone(),
        metrics: metrics.of_tier(KvTier::Disk),
        changes: None,
        wake: Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }),
    });
    Opened { store: store.unwrap(), metrics, gate, woken }
}

fn open(root: &Path) -> Opened {
    open_with(root, 1 << 30, 1 << 20)
}

impl Opened {
    fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.render();
        let line = text.lines().find(|line| line.starts_with(&format!("sconce:kv_disk_{name}")));
        line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// What arrives of these, up to the first that is missing.
    fn load(&self, contents: &[Content]) -> Vec<Vec<u8>> {
        let handle = self.store.load(contents.to_vec());
        let mut payloads = Vec::new();
        loop {
            let Some(Loaded { id, part }) = self.store.take_loaded() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            assert_eq!(id, handle.id);
            let Some((content, payload)) = part else { return payloads };
            assert_eq!(content, contents[payloads.len()]);
            payloads.push(payload.bytes().to_vec());
        }
    }

    fn wait_until(&self, condition: impl Fn(&Self) -> bool) {
        for _ in 0..5000 {
            if condition(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("it never came:\n{}", self.metrics.render());
    }
}

fn hash(number: u8) -> BlockHash {
    BlockHash::from_bytes([number; 16])
}

fn block(number: u8) -> Content {
    Content::Block(hash(number))
}

fn path(root: &Path, content: Content) -> std::path::PathBuf {
    FileKey { namespace: Namespace::from_bytes(NAMESPACE), content }.path(root)
}

#[test]
fn what_was_stored_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    let state = Content::Snapshot(hash(1));
    first.store.store(block(1), vec![1; 1000]);
    first.store.store(state, vec![2; 500]);
    first.store.store(block(2), Vec::new());
    drop(first.store);
    let second = open(folder.path());
    assert!(second.store.contains(block(1)) && second.store.contains(state));
    assert!(!second.store.contains(block(3)));
    let loaded = second.load(&[block(1), state, block(2), block(3), block(1)]);
    assert_eq!(loaded, [vec![1; 1000], vec![2; 500], Vec::new()]);
    assert!(second.woken.load(Ordering::Relaxed) > 0);
    assert_eq!(second.metric("loaded_blocks_total"), 3);
    assert_eq!(second.metric("loaded_bytes_total"), 1500);
    assert_eq!(second.metric("blocks{"), 3);
}

#[test]
fn files_that_are_not_what_they_say_are_missing_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    (1..=5).for_each(|number| first.store.store(block(number), vec![number; 1000]));
    drop(first.store);
    let at = |number| path(folder.path(), block(number));
    let whole = fs::read(at(1)).unwrap();
    fs::write(at(1), &whole[..700]).unwrap();
    let mut flipped = fs::read(at(2)).unwrap();
    flipped[300] ^= 4;
    fs::write(at(2), flipped).unwrap();
    fs::copy(at(5), at(3)).unwrap();
    fs::write(at(4), b"").unwrap();
    fs::write(at(1).with_file_name("notes.txt"), "mine").unwrap();
    let verified = inventory::verify(folder.path()).unwrap();
    assert_eq!((verified.good, verified.bad.len()), (1, 4), "{verified:?}");
    assert_eq!(verified.foreign.len(), 1);
    let second = open(folder.path());
    for number in 1..=4 {
        assert_eq!(second.load(&[block(number)]), Vec::<Vec<u8>>::new(), "{number}");
        assert!(!second.store.contains(block(number)) && !at(number).exists());
    }
    assert_eq!(second.load(&[block(5)]), [[5; 1000]]);
    assert_eq!(second.metric("corrupt_blocks_total"), 4);
    assert!(at(1).with_file_name("notes.txt").exists());
}

#[test]
fn the_least_recently_used_goes_when_the_folder_is_full() {
    let folder = tempfile::tempdir().unwrap();
    // Each takes 1064 bytes.
    let opened = open_with(folder.path(), 4500, 1 << 20);
    for number in 1..=4 {
        opened.store.store(block(number), vec![number; 1000]);
    }
    // A chain of two: its second block goes before its first.
    opened.store.touch(vec![hash(1), hash(2)]);
    opened.store.store(block(5), vec![5; 1000]);
    opened.store.store(block(6), vec![6; 1000]);
    opened.store.store(block(7), vec![7; 1000]);
    opened.store.store(block(8), vec![8; 5000]);
    opened.wait_until(|opened| opened.metric("dropped_blocks_total") == 1);
    let there = (1..=8).filter(|number| opened.store.contains(block(*number)));
    assert_eq!(there.collect::<Vec<_>>(), [1, 5, 6, 7]);
    assert_eq!(opened.metric("evicted_blocks_total"), 3);
    let files = fs::read_dir(path(folder.path(), block(1)).parent().unwrap()).unwrap();
    assert_eq!(files.count(), 4 + 1, "and what the namespace stands for");
    // A smaller bound holds from the start on.
    drop(opened.store);
    let smaller = open_with(folder.path(), 2200, 1 << 20);
    assert_eq!(smaller.metric("blocks{"), 2);
}

#[test]
fn a_full_disk_costs_blocks_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    opened.store.store(block(1), vec![1; 1000]);
    opened.wait_until(|opened| opened.store.contains(block(1)));
    opened.gate.full.store(true, Ordering::Relaxed);
    opened.store.store(block(2), vec![2; 1000]);
    opened.wait_until(|opened| opened.metric("errors_total") == 1);
    opened.gate.full.store(false, Ordering::Relaxed);
    opened.store.store(block(3), vec![3; 1000]);
    opened.wait_until(|opened| opened.store.contains(block(3)));
    assert!(!opened.store.contains(block(2)));
    assert_eq!(opened.load(&[block(1)]).len(), 1);
    let verified = inventory::verify(folder.path()).unwrap();
    assert_eq!((verified.good, verified.temporary, verified.bad.len()), (2, 0, 0));
}

#[test]
fn a_slow_disk_fills_the_queue_and_the_engine_is_woken_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open_with(folder.path(), 1 << 30, 2000);
    opened.gate.set_closed(true);
    for number in 1..=2 {
        assert!(opened.store.has_room());
        opened.store.store(block(number), vec![number; 1000]);
    }
    assert!(!opened.store.has_room());
    opened.store.looked();
    let woken = opened.woken.load(Ordering::Relaxed);
    opened.gate.set_closed(false);
    opened.wait_until(|opened| opened.woken.load(Ordering::Relaxed) > woken);
    assert!(opened.store.has_room());
}

#[test]
fn a_load_that_is_given_up_ends_the_wait_of_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    (1..=3).for_each(|number| opened.store.store(block(number), vec![number; 1000]));
    opened.wait_until(|opened| opened.store.contains(block(3)));
    opened.gate.set_closed(true);
    let given_up = opened.store.load(vec![block(1), block(2)]);
    let id = given_up.id;
    drop(given_up);
    opened.gate.set_closed(false);
    let mut ends = 0;
    opened.wait_until(|opened| opened.woken.load(Ordering::Relaxed) > 0);
    while ends == 0 {
        if let Some(Loaded { id: of, part }) = opened.store.take_loaded() {
            assert_eq!(of, id);
            ends += usize::from(part.is_none());
        }
    }
    assert_eq!(opened.load(&[block(3)]), [[3; 1000]]);
}

#[test]
fn two_processes_see_what_the_other_stores_and_removes() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (open(folder.path()), open(folder.path()));
    one.store.store(block(1), vec![1; 1000]);
    other.wait_until(|other| other.store.contains(block(1)));
    assert_eq!(other.load(&[block(1)]), [[1; 1000]]);
    // Both may write the same at the same time.
    one.store.store(block(2), vec![2; 1000]);
    other.store.store(block(2), vec![2; 1000]);
    one.wait_until(|one| one.store.contains(block(2)));
    other.wait_until(|other| other.store.contains(block(2)));
    let holdings = inventory::list(folder.path()).unwrap();
    assert_eq!((holdings.len(), holdings[0].blocks, holdings[0].snapshots), (1, 2, 0));
    assert_eq!(holdings[0].about.as_ref().unwrap().model, "test");
    let removed = inventory::remove(folder.path(), &[holdings[0].namespace]).unwrap();
    assert_eq!(removed.0, 2);
    assert_eq!(one.load(&[block(1)]).len(), 0, "a miss, and no fault");
    assert_eq!(one.metric("errors_total") + one.metric("corrupt_blocks_total"), 0);
    other.wait_until(|other| !other.store.contains(block(2)));
    // The subfolder is made again.
    one.store.store(block(3), vec![3; 1000]);
    one.wait_until(|one| one.store.contains(block(3)));
    assert_eq!(one.load(&[block(3)]), [[3; 1000]]);
}

#[test]
fn what_killed_processes_left_is_removed_once_it_is_old() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).store);
    let left = |name: &str| {
        let key = FileKey { namespace: Namespace::from_bytes(NAMESPACE), content: block(1) };
        let path = key.temporary_path(folder.path(), name);
        fs::write(&path, b"half").unwrap();
        path
    };
    let (old, young) = (left("00000000000000aa"), left("00000000000000bb"));
    let hour = SystemTime::now() - Duration::from_hours(1);
    Disk.touch(&old, hour).unwrap();
    let opened = open(folder.path());
    assert!(!old.exists() && young.exists());
    assert!(!opened.store.contains(block(1)));
    let verified = inventory::verify(folder.path()).unwrap();
    assert_eq!((verified.good, verified.temporary), (0, 1));
    let namespace = Namespace::from_bytes(NAMESPACE);
    assert_eq!(inventory::remove(folder.path(), &[namespace]).unwrap().0, 1);
    assert!(!young.exists() && !young.parent().unwrap().exists());
}
