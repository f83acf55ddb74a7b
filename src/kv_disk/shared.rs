//! What the engine's end and the threads share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::file::Payload;
use super::files::Files;
use super::folder::FileKey;
use super::index::Index;
use super::namespace::{About, Namespace};
use crate::kv_cache::content::Content;
use crate::metrics::kv_tiers::TierMetrics;

/// Bytes that may wait to be written, and as many that may be read ahead of the engine.
pub const QUEUED_BYTES: usize = 64 << 20;

/// Takes changes of what is stored: content, and whether it is there now.
pub type ChangeSink = Box<dyn Fn(Vec<(Content, bool)>) + Send + Sync>;

/// What a store is opened with.
pub struct StoreConfig {
    /// The folder.
    pub root: PathBuf,
    /// Most bytes in it, of all namespaces.
    pub max_bytes: u64,
    /// The subfolder of this process.
    pub namespace: Namespace,
    /// What that stands for.
    pub about: About,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Bytes that may wait to be written; one block may always.
    pub queued_bytes: usize,
    /// How files are read and written.
    pub files: Arc<dyn Files>,
    /// Where stored and loaded blocks are counted.
    pub metrics: TierMetrics,
    /// Called with what has come to this process's subfolder (`true`) or gone from it, in order, from
    /// the threads of the store and while it is opened; it must not wait.
    pub changes: Option<ChangeSink>,
    /// Called from other threads when something was loaded, or there is room to store more.
    pub wake: Box<dyn Fn() + Send + Sync>,
}

/// Identifies a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoadId(u64);

/// A load that was begun; it is given up when this is dropped.
#[derive(Debug)]
pub struct LoadHandle {
    /// Which one it is.
    pub id: LoadId,
    cancelled: Arc<AtomicBool>,
}

impl LoadId {
    pub(super) fn new(number: u64) -> Self {
        Self(number)
    }
}

impl LoadHandle {
    pub(super) fn new(id: LoadId, cancelled: Arc<AtomicBool>) -> Self {
        Self { id, cancelled }
    }
}

impl Drop for LoadHandle {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

/// A part of a load, or its end.
#[derive(Debug)]
pub struct Loaded {
    /// The load.
    pub id: LoadId,
    /// What was loaded; `None`: nothing more comes, since all was loaded or something is missing.
    pub part: Option<(Content, Payload)>,
}

/// What the store and its threads share.
pub(super) struct Shared {
    pub(super) config: StoreConfig,
    index: Mutex<Index>,
    /// Bytes that wait to be written.
    queued: AtomicUsize,
    /// The engine was woken and has not looked yet.
    woken: AtomicBool,
    /// The engine has more to store than there is room for.
    wants_room: AtomicBool,
}

impl Shared {
    pub(super) fn new(config: StoreConfig) -> Self {
        let watched = config.changes.is_some().then_some(config.namespace);
        Self {
            config,
            index: Mutex::new(Index::watching(watched)),
            queued: AtomicUsize::new(0),
            woken: AtomicBool::new(false),
            wants_room: AtomicBool::new(false),
        }
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn key(&self, content: Content) -> FileKey {
        FileKey { namespace: self.config.namespace, content }
    }

    /// Whether more bytes may be queued. If not, the engine is woken when they may.
    pub(super) fn has_room(&self) -> bool {
        let has_room = || self.queued.load(Ordering::Acquire) < self.config.queued_bytes;
        if has_room() {
            return true;
        }
        self.wants_room.store(true, Ordering::Release);
        // The writer may have made room before it saw that it is wanted.
        has_room()
    }

    /// Notes that so many bytes are queued.
    pub(super) fn enqueue(&self, bytes: usize) {
        self.queued.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Notes that so many queued bytes are written, or never will be.
    pub(super) fn dequeue(&self, bytes: usize) {
        self.queued.fetch_sub(bytes, Ordering::AcqRel);
        if self.wants_room.swap(false, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Wakes the engine, once until it looks.
    pub(super) fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            (self.config.wake)();
        }
    }

    /// The engine looks now: what comes later wakes it again.
    pub(super) fn looked(&self) {
        self.woken.store(false, Ordering::Release);
    }

    /// Tells how much is in the folder, and what has changed there.
    pub(super) fn report(&self) {
        let mut index = self.index();
        self.config.metrics.set_stored(index.len(), index.bytes());
        let changes = index.take_changes();
        // While the index is locked: changes arrive in their order.
        if let Some(sink) = self.config.changes.as_ref().filter(|_| !changes.is_empty()) {
            sink(changes);
        }
    }
}
