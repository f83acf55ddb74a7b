//! The engine's end of the folder: no call of it waits for a disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use super::reader::{LoadJob, Reader};
use super::shared::{LoadHandle, LoadId, Loaded, QUEUED_BYTES, Shared, StoreConfig};
use super::writer::{Job, Writer};
use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::content::Content;

/// A folder that blocks are stored in and loaded from.
pub struct Store {
    shared: Arc<Shared>,
    /// Taken when the store is dropped, which ends the writer.
    jobs: Option<Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    loads: Sender<LoadJob>,
    loaded: Receiver<Loaded>,
    next_load: AtomicU64,
}

impl Store {
    /// Opens the folder, which is made if it does not exist, looks at what is in it, and starts the
    /// threads.
    ///
    /// # Errors
    /// When the folder can't be made or read, or the system gives no thread.
    pub fn open(config: StoreConfig) -> io::Result<Self> {
        let ahead = (QUEUED_BYTES / config.block_bytes.max(1)).clamp(2, 1024);
        let shared = Arc::new(Shared::new(config));
        let (jobs, receiver) = mpsc::channel();
        let mut writer = Writer::new(shared.clone(), receiver);
        writer.open()?;
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let writer = thread("kv disk writer").spawn(move || writer.run())?;
        let (loads, load_jobs) = mpsc::channel();
        let (sender, loaded) = mpsc::sync_channel(ahead);
        let reader = Reader::new(shared.clone(), load_jobs, sender);
        thread("kv disk reader").spawn(move || reader.run())?;
        let (jobs, writer, next_load) = (Some(jobs), Some(writer), AtomicU64::new(0));
        Ok(Self { shared, jobs, writer, loads, loaded, next_load })
    }

    /// Whether the folder holds this, as far as is known.
    pub fn contains(&self, content: Content) -> bool {
        self.shared.index().contains(&self.shared.key(content))
    }

    /// Whether more can be stored now. If not, the engine is woken when it can.
    pub fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    /// Queues content to be written.
    pub fn store(&self, content: Content, payload: Vec<u8>) {
        self.shared.enqueue(payload.len());
        self.send(Job::Store { content, payload });
    }

    /// Marks the blocks of a chain as used, and the snapshots behind them; of a chain the last are
    /// evicted first.
    pub fn touch(&self, chain: Vec<BlockHash>) {
        self.send(Job::Touch(chain));
    }

    /// Begins to load these, in this order.
    pub fn load(&self, contents: Vec<Content>) -> LoadHandle {
        let id = LoadId::new(self.next_load.fetch_add(1, Ordering::Relaxed));
        let cancelled = Arc::new(AtomicBool::new(false));
        let job = LoadJob { id, contents, cancelled: cancelled.clone() };
        // Without a reader nothing comes, and the load is given up in time.
        let _ = self.loads.send(job);
        LoadHandle::new(id, cancelled)
    }

    /// The next part of any load, if one has arrived.
    pub fn take_loaded(&self) -> Option<Loaded> {
        self.loaded.try_recv().ok()
    }

    /// Says that the engine looks now: what comes later wakes it again.
    pub fn looked(&self) {
        self.shared.looked();
    }

    fn send(&self, job: Job) {
        let Some(jobs) = &self.jobs else { return };
        // The writer ends when the store does.
        let _ = jobs.send(job);
    }
}

impl Drop for Store {
    /// Waits until all that is queued is written. The reader ends by itself, once its disk answers.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the thread that writes to the folder of --kv-disk panicked");
        }
    }
}
