//! The engine's end: batches into a bounded queue, never waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::kv_cache::content::Content;
use crate::kv_cache::events::CacheEvent;
use crate::metrics::MetricsHandle;
use crate::metrics::kv_tiers::KvTier;

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// In the pool of the device that computes, in order.
    Pool(Vec<CacheEvent>),
    /// Behind it: what is there now (`true`) and what is gone, in order.
    Behind(KvTier, Vec<(Content, bool)>),
    /// Everything is forgotten.
    Cleared,
}

/// Hands changes to the publisher; cheap to clone. The publisher ends with the last one.
#[derive(Clone)]
pub struct EventSender {
    queue: Sender<Change>,
    dropped: Arc<AtomicU64>,
    metrics: MetricsHandle,
}

/// The publisher's end of the queue.
pub(super) struct ChangeReceiver {
    queue: Receiver<Change>,
    dropped: Arc<AtomicU64>,
}

/// A queue for `capacity` batches, at least 1.
pub(super) fn queue(capacity: usize, metrics: &MetricsHandle) -> (EventSender, ChangeReceiver) {
    let (sender, receiver) = channel(capacity);
    let dropped = Arc::new(AtomicU64::new(0));
    let events = EventSender { queue: sender, dropped: dropped.clone(), metrics: metrics.clone() };
    (events, ChangeReceiver { queue: receiver, dropped })
}

impl EventSender {
    /// Queues a batch; drops it if the queue is full.
    pub fn send(&self, change: Change) {
        if self.queue.try_send(change).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            self.metrics.add_kv_events_dropped();
        }
    }
}

impl std::fmt::Debug for EventSender {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EventSender").finish_non_exhaustive()
    }
}

impl ChangeReceiver {
    /// The next batch; `None` once all senders are gone.
    pub(super) async fn next(&mut self) -> Option<Change> {
        self.queue.recv().await
    }

    /// Batches that were dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}
