//! The engine's side of the folder of blocks: between steps it puts what was loaded into the cache, asks
//! for what waiting sequences could resume behind, and hands over what was computed.
//!
//! Bytes are copied on the engine thread, to and from the pool; everything that waits for a disk is done
//! by the store's threads. What was computed is remembered by name and copied once there is room in the
//! store's queue: a block's content does not change as long as it is cached.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::kv_cache::BLOCK_SIZE;
use crate::kv_cache::content::Content;
use crate::kv_disk::{LoadHandle, LoadId, Loaded, Payload, Store};
use crate::metrics::MetricsHandle;
use crate::runner::Runner;
use crate::scheduler::Scheduler;
use crate::scheduler::sequence::SequenceId;

/// How long an engine that ends goes on to store what it has.
const FLUSH: Duration = Duration::from_secs(10);

/// A load of one sequence.
struct Load {
    handle: LoadHandle,
    sequence: SequenceId,
    /// When something last arrived.
    progress: Instant,
}

/// A slower tier of the cache.
pub(in crate::engine) struct Tier {
    store: Store,
    /// Longest time without progress that a sequence waits for a load.
    patience: Duration,
    /// Content to be stored, oldest first.
    backlog: VecDeque<Content>,
    loads: HashMap<LoadId, Load>,
    /// Waits for commands with a time limit.
    pub(super) clock: Runtime,
    metrics: MetricsHandle,
}

impl Tier {
    /// A tier over an open folder.
    ///
    /// # Errors
    /// When the system gives no timer.
    pub(in crate::engine) fn new(
        store: Store,
        patience: Duration,
        metrics: MetricsHandle,
    ) -> std::io::Result<Self> {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (backlog, loads) = Default::default();
        Ok(Self { store, patience, backlog, loads, clock, metrics })
    }

    /// Does what is due between two steps.
    pub(super) fn advance(&mut self, scheduler: &mut Scheduler, runner: &Runner) {
        self.store.looked();
        while let Some(loaded) = self.store.take_loaded() {
            self.place(loaded, scheduler, runner);
        }
        self.give_up_slow_loads(scheduler);
        self.begin_loads(scheduler);
        self.backlog.extend(scheduler.take_added());
        for chain in scheduler.take_released() {
            self.store.touch(chain);
        }
        self.offer(scheduler, runner);
    }

    /// When the first of the loads is given up, if any is awaited.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.loads.values().map(|load| load.progress + self.patience).min()
    }

    /// Stores what is left to be stored, for some seconds at most. The store waits for what it has
    /// when it is dropped.
    pub(super) fn finish(mut self, scheduler: &mut Scheduler, runner: &Runner) {
        let end = Instant::now() + FLUSH;
        self.backlog.extend(scheduler.take_added());
        self.offer(scheduler, runner);
        while !self.backlog.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
            self.offer(scheduler, runner);
        }
        self.metrics.add_kv_disk_dropped(self.backlog.len());
    }

    fn place(&mut self, loaded: Loaded, scheduler: &mut Scheduler, runner: &Runner) {
        // One that was given up.
        let Some(load) = self.loads.get_mut(&loaded.id) else { return };
        let sequence = load.sequence;
        let wanted = loaded.part.is_some_and(|(content, payload)| {
            load.progress = Instant::now();
            let placed =
                scheduler.place(sequence, content, |index| copy(runner, content, index, &payload));
            if placed && matches!(content, Content::Block(_)) {
                self.metrics.add_external_hits(BLOCK_SIZE);
            }
            placed
        });
        if !wanted {
            self.loads.remove(&loaded.id);
            scheduler.end_load(sequence);
        }
    }

    /// A disk that answers slowly must not be slower than computing.
    fn give_up_slow_loads(&mut self, scheduler: &mut Scheduler) {
        let patience = self.patience;
        self.loads.retain(|_, load| {
            let is_slow = load.progress.elapsed() >= patience;
            if is_slow && scheduler.end_load(load.sequence) {
                tracing::warn!("a prompt is computed, since its blocks are read too slowly");
            }
            !is_slow
        });
    }

    fn begin_loads(&mut self, scheduler: &mut Scheduler) {
        let store = &self.store;
        let (planned, looked_up) = scheduler.plan_loads(|content| store.contains(content));
        self.metrics.add_external_queries(looked_up);
        for (sequence, contents) in planned {
            let handle = self.store.load(contents);
            let load = Load { sequence, progress: Instant::now(), handle };
            self.loads.insert(load.handle.id, load);
        }
    }

    /// Copies content to the store as long as it has room.
    fn offer(&mut self, scheduler: &Scheduler, runner: &Runner) {
        while let Some(content) = self.backlog.front().copied() {
            if !self.store.has_room() {
                return;
            }
            self.backlog.pop_front();
            if self.store.contains(content) {
                continue;
            }
            let kv_cache = scheduler.kv_cache();
            let bytes = match content {
                Content::Block(hash) => kv_cache.block(hash).map(|block| runner.read_block(block)),
                Content::Snapshot(hash) => {
                    kv_cache.snapshot(hash).map(|row| runner.read_snapshot(row))
                }
            };
            match bytes {
                Some(Ok(bytes)) => self.store.store(content, bytes),
                Some(Err(error)) => tracing::error!("a block could not be copied: {error}"),
                None => self.metrics.add_kv_disk_dropped(1),
            }
        }
    }
}

/// Copies what was loaded to its place; returns whether that worked.
fn copy(runner: &Runner, content: Content, index: u32, payload: &Payload) -> bool {
    let copied = match content {
        Content::Block(_) => runner.write_block(index, payload.bytes()),
        Content::Snapshot(_) => runner.write_snapshot(index, payload.bytes()),
    };
    if let Err(error) = &copied {
        tracing::error!("a stored block could not be copied: {error}");
    }
    copied.is_ok()
}
