//! The engine's side of the tiers behind the pool: between steps it puts what was loaded into the cache, asks
//! for what waiting sequences could resume behind, and hands over what was computed.
//!
//! Bytes are copied on the engine thread, to and from the pool; everything that waits is done by the
//! stores' threads. What was computed is remembered by name and copied to each tier once there is room in
//! that one's queue: a block's content does not change as long as it is cached. A load takes each content
//! from the fastest tier that has it, one stretch of the same tier after the other.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::kv_cache::BLOCK_SIZE;
use crate::kv_cache::content::Content;
use crate::kv_disk::{LoadHandle, LoadId, Loaded, Payload, Store};
use crate::metrics::MetricsHandle;
use crate::metrics::kv_tiers::{KvTier, TierMetrics};
use crate::runner::Runner;
use crate::scheduler::Scheduler;
use crate::scheduler::sequence::SequenceId;

/// How long an engine that ends goes on to store what it has.
const FLUSH: Duration = Duration::from_secs(10);

/// What one tier has, in the order in which it is wanted.
type Stretch = (usize, Vec<Content>);

/// A load of one sequence.
struct Load {
    /// The load is given up when this is dropped.
    _handle: LoadHandle,
    sequence: SequenceId,
    /// When something last arrived.
    progress: Instant,
    /// What has not arrived of the stretch that is loaded.
    missing: usize,
    /// Loaded behind that.
    rest: VecDeque<Stretch>,
}

/// One tier.
struct Level {
    tier: KvTier,
    store: Store,
    /// Content to be stored, oldest first.
    backlog: VecDeque<Content>,
    metrics: TierMetrics,
}

/// The slower tiers of the cache.
pub(in crate::engine) struct Tiers {
    /// The fastest first.
    levels: Vec<Level>,
    /// Longest time without progress that a sequence waits for a load.
    patience: Duration,
    /// By the tier that loads, and its number there.
    loads: HashMap<(usize, LoadId), Load>,
    /// Waits for commands with a time limit.
    pub(super) clock: Runtime,
    metrics: MetricsHandle,
}

impl Tiers {
    /// Tiers over open stores, the fastest first.
    ///
    /// # Errors
    /// When the system gives no timer.
    pub(in crate::engine) fn new(
        stores: Vec<(KvTier, Store)>,
        patience: Duration,
        metrics: &MetricsHandle,
    ) -> std::io::Result<Self> {
        let clock = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let level = |(tier, store)| Level {
            tier,
            store,
            backlog: VecDeque::new(),
            metrics: metrics.of_tier(tier),
        };
        let levels = stores.into_iter().map(level).collect();
        Ok(Self { levels, patience, loads: HashMap::new(), clock, metrics: metrics.clone() })
    }

    /// Does what is due between two steps.
    pub(super) fn advance(&mut self, scheduler: &mut Scheduler, runner: &Runner) {
        for index in 0..self.levels.len() {
            self.levels[index].store.looked();
            while let Some(loaded) = self.levels[index].store.take_loaded() {
                self.place(index, loaded, scheduler, runner);
            }
        }
        self.give_up_slow_loads(scheduler);
        self.begin_loads(scheduler);
        let (added, released) = (scheduler.take_added(), scheduler.take_released());
        for level in &mut self.levels {
            level.backlog.extend(&added);
            for chain in &released {
                level.store.touch(chain.clone());
            }
            level.offer(scheduler, runner);
        }
    }

    /// When the first of the loads is given up, if any is awaited.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.loads.values().map(|load| load.progress + self.patience).min()
    }

    /// Stores what is left to be stored, for some seconds at most. The stores wait for what they have
    /// when they are dropped.
    pub(super) fn finish(mut self, scheduler: &mut Scheduler, runner: &Runner) {
        let end = Instant::now() + FLUSH;
        let added = scheduler.take_added();
        // Host memory ends with the process.
        for level in self.levels.iter_mut().filter(|level| level.tier == KvTier::Disk) {
            level.backlog.extend(&added);
            level.offer(scheduler, runner);
            while !level.backlog.is_empty() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(2));
                level.offer(scheduler, runner);
            }
            level.metrics.add_dropped(level.backlog.len());
        }
    }

    fn place(&mut self, level: usize, loaded: Loaded, scheduler: &mut Scheduler, runner: &Runner) {
        let key = (level, loaded.id);
        // One that was given up.
        let Some(load) = self.loads.get_mut(&key) else { return };
        let Some((content, payload)) = loaded.part else { return self.go_on(key, scheduler) };
        let sequence = load.sequence;
        load.progress = Instant::now();
        load.missing -= 1;
        let copied = |index| copy(runner, content, index, &payload);
        if !scheduler.place(sequence, content, copied) {
            self.loads.remove(&key);
            scheduler.end_load(sequence);
            return;
        }
        if matches!(content, Content::Block(_)) {
            self.metrics.add_external_hits(BLOCK_SIZE);
        }
        // What is used again is kept where it is found sooner.
        for faster in &mut self.levels[..level] {
            faster.backlog.push_back(content);
        }
    }

    /// A tier has given all that it will of a load: goes on with the next if nothing was missing.
    fn go_on(&mut self, key: (usize, LoadId), scheduler: &mut Scheduler) {
        let Some(load) = self.loads.remove(&key) else { return };
        if load.missing == 0 && !load.rest.is_empty() {
            self.begin(load.sequence, load.rest);
        } else {
            scheduler.end_load(load.sequence);
        }
    }

    /// A tier that answers slowly must not be slower than computing.
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
        let has = |content| self.levels.iter().position(|level| level.store.contains(content));
        let (planned, looked_up) = scheduler.plan_loads(|content| has(content).is_some());
        self.metrics.add_external_queries(looked_up);
        for (sequence, contents) in planned {
            let stretches = self.stretches(contents);
            self.begin(sequence, stretches);
        }
    }

    /// Which tier has what.
    fn stretches(&self, contents: Vec<Content>) -> VecDeque<Stretch> {
        let mut stretches: VecDeque<Stretch> = VecDeque::new();
        for content in contents {
            let has = |level: &Level| level.store.contains(content);
            // The last is asked for what was evicted meanwhile: it is missing there too.
            let level = self.levels.iter().position(has).unwrap_or(self.levels.len() - 1);
            match stretches.back_mut() {
                Some((last, stretch)) if *last == level => stretch.push(content),
                _ => stretches.push_back((level, vec![content])),
            }
        }
        stretches
    }

    /// Begins the first of these stretches.
    fn begin(&mut self, sequence: SequenceId, mut rest: VecDeque<Stretch>) {
        let Some((level, contents)) = rest.pop_front() else { return };
        let missing = contents.len();
        let handle = self.levels[level].store.load(contents);
        let key = (level, handle.id);
        let load = Load { _handle: handle, sequence, progress: Instant::now(), missing, rest };
        self.loads.insert(key, load);
    }
}

impl Level {
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
                None => self.metrics.add_dropped(1),
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
