//! Ended sequences by the reason why they ended.

use std::sync::Arc;

use metrics::Counter;

use super::metric::Metric;
use super::registry::{Instrument, LabelPair, Registry};

/// Why a sequence ended, as the `finished_reason` label says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// End-of-sequence, a stop token or a stop string.
    Stop,
    /// `max_tokens`, the context's length or a deadline.
    Length,
    /// The client went away, or the server cut it at shutdown.
    Abort,
    /// The engine failed.
    Error,
}

const FINISHED: [(Finished, &str); 4] = [
    (Finished::Stop, "stop"),
    (Finished::Length, "length"),
    (Finished::Abort, "abort"),
    (Finished::Error, "error"),
];

/// A counter for each reason, in the order of the reasons.
pub(super) struct FinishedCounters([Counter; 4]);

impl FinishedCounters {
    /// A sequence ended for this reason.
    pub(super) fn count(&self, reason: Finished) {
        let position = FINISHED.iter().position(|(known, _)| *known == reason);
        self.0[position.expect("the array lists every reason")].increment(1);
    }
}

impl Instrument for FinishedCounters {
    fn register(registry: &Arc<Registry>, metric: Metric, _: &[LabelPair]) -> Self {
        Self(FINISHED.map(|(_, reason)| {
            Counter::register(registry, metric, &[("finished_reason", reason.into())])
        }))
    }
}
