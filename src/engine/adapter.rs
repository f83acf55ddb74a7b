//! LoRA adapters as requests name them: loaded by whoever serves them, kept alive by whoever uses
//! them, gone with the last of both.

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
    weights: Arc<runner::Adapter>,
}

impl Adapter {
    /// A load of these weights, unlike all others.
    pub(super) fn new(name: &str, weights: runner::Adapter) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = AdapterId(NEXT.fetch_add(1, Ordering::Relaxed));
        Self { id, name: name.into(), weights: Arc::new(weights) }
    }

    /// What requests call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes that its matrices take.
    pub fn size_in_bytes(&self) -> usize {
        self.weights.size_in_bytes()
    }

    pub(super) fn id(&self) -> AdapterId {
        self.id
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
