//! A panic of the engine thread outside of the model: every sequence ends with an error, and the engine
//! begins anew, once, in the same process.
//!
//! A panic inside of a step's computation is a failed step and needs none of this. Elsewhere a panic may
//! have left half a change in what the thread owns, so all of it that requests change is thrown away:
//! sequences, blocks, the prefix cache, beam searches, adapters in use, pictures. What stays changes with
//! no request (weights), or is written before it is read (the KV cache's memory).
//!
//! Where somebody else has a part of that state, the thread ends instead, and with it the process: threads
//! that load and store blocks of a folder, other ranks, steps that a GPU has begun. So does a second
//! panic: something is wrong that a new beginning doesn't mend.

use std::time::Duration;

use super::EngineCore;
use super::adapters::Adapters;
use super::sights::Sights;
use crate::engine::output::{EngineError, EngineOutput};
use crate::kv_events::Change;

/// How long a new beginning waits, so that what made the engine panic may pass.
const BACKOFF: Duration = Duration::from_secs(1);

impl EngineCore {
    /// Ends all sequences with an error after a panic, and begins anew if that is sound. Says whether it
    /// did.
    pub(super) fn begin_anew(&mut self, message: &str) -> bool {
        self.shared.end_step();
        let sound = self.tiers.is_none() && self.runner.is_alone_on_cpu();
        let scheduler = self.pristine.take().filter(|_| sound);
        let count = self.active.len();
        self.shared.set_restarting(scheduler.is_some());
        tracing::error!(
            sequences = count,
            message,
            restarts = scheduler.is_some(),
            "the engine panicked"
        );
        for active in std::mem::take(&mut self.active).into_values() {
            active.send(EngineOutput::Failed(EngineError::StepFailed(message.to_owned())));
        }
        std::mem::take(&mut self.searches).end(message);
        let Some(scheduler) = scheduler else { return false };
        self.scheduler = scheduler;
        (self.adapters, self.sights) = (Adapters::default(), Sights::default());
        (self.stalled, self.failed) = (false, false);
        if let Some(events) = &self.events {
            events.send(Change::Cleared);
        }
        self.report_load();
        std::thread::sleep(BACKOFF);
        self.metrics.engine_restarted();
        self.shared.set_restarting(false);
        tracing::warn!("the engine begins anew, with an empty cache");
        true
    }
}
