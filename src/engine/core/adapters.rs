//! The adapters of the sequences that run or wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::adapter::Adapter;
use crate::metrics::MetricsHandle;
use crate::runner;
use crate::scheduler::Scheduler;
use crate::scheduler::sequence::AdapterId;

/// The adapters that sequences may refer to by id.
#[derive(Default)]
pub(super) struct Adapters {
    known: BTreeMap<AdapterId, Adapter>,
}

impl Adapters {
    /// Stores the adapter of a sequence that is about to be added; returns its id and its digest for
    /// the scheduler.
    pub(super) fn take(&mut self, adapter: Option<Adapter>) -> Option<(AdapterId, [u8; 16])> {
        let adapter = adapter?;
        let (id, digest) = (adapter.id(), adapter.digest());
        self.known.insert(id, adapter);
        Some((id, digest))
    }

    /// The matrices of an adapter.
    pub(super) fn weights(&self, id: AdapterId) -> Arc<runner::Adapter> {
        let adapter = self.known.get(&id).expect("adapters stay as long as their sequences");
        Arc::clone(adapter.weights())
    }

    /// Reports which adapters are in use and drops the others.
    pub(super) fn report(&mut self, scheduler: &Scheduler, metrics: &MetricsHandle) {
        if self.known.is_empty() {
            return;
        }
        let [running, waiting] = scheduler.adapters();
        self.known.retain(|id, _| running.contains(id) || waiting.contains(id));
        let names = |ids: &BTreeSet<AdapterId>| {
            let names: BTreeSet<&str> = ids.iter().map(|id| self.known[id].name()).collect();
            names.into_iter().collect::<Vec<_>>().join(",")
        };
        metrics.set_lora_requests(names(&running), names(&waiting));
    }
}
