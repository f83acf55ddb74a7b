//! How much of a checkpoint is loaded, told to whoever shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Told of every tensor that was loaded: bytes so far, bytes of all tensors. Called from the
/// thread that loads, a few hundred times.
pub type ProgressSink = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Counts loaded bytes.
#[derive(Clone)]
pub(crate) struct Progress {
    loaded: Arc<AtomicU64>,
    total: u64,
    sink: ProgressSink,
}

impl Progress {
    pub(crate) fn new(total: u64, sink: ProgressSink) -> Self {
        Self { loaded: Arc::new(AtomicU64::new(0)), total, sink }
    }

    pub(crate) fn add(&self, bytes: u64) {
        let loaded = self.loaded.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // A tensor that is read twice counts twice.
        (self.sink)(loaded.min(self.total), self.total);
    }
}
