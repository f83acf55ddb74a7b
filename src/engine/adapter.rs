//! LoRA adapters as requests name them, shared by those who serve and those who use them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::runner;
use crate::scheduler::sequence::AdapterId;

/// One load of an adapter; cheap to clone.
#[derive(Clone)]
pub struct Adapter {
    id: AdapterId,
    name: Arc<str>,
    digest: [u8; 16],
    weights: Arc<runner::Adapter>,
}

impl Adapter {
    /// One load of these weights, different from all others. KV is shared with those of the same
    /// `digest`, which tells what they compute.
    pub(super) fn new(name: &str, digest: [u8; 16], weights: runner::Adapter) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = AdapterId(NEXT.fetch_add(1, Ordering::Relaxed));
        Self { id, name: name.into(), digest, weights: Arc::new(weights) }
    }

    /// The name that requests use.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same name, to be kept.
    pub(super) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Bytes of the adapter's matrices.
    pub fn size_in_bytes(&self) -> usize {
        self.weights.size_in_bytes()
    }

    pub(super) fn id(&self) -> AdapterId {
        self.id
    }

    pub(super) fn digest(&self) -> [u8; 16] {
        self.digest
    }

    pub(super) fn weights(&self) -> &Arc<runner::Adapter> {
        &self.weights
    }
}

impl PartialEq for Adapter {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Adapter {}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of load {}", self.name, self.id.0)
    }
}
