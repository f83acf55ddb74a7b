//! What runs stored requests: responses in the background, and the lines of batches when nothing else
//! needs the engine.
//!
//! A request is claimed for a while, goes through the same handlers as one from a socket, and is
//! answered in the store by whoever holds it. Several servers of one store share the work; what a
//! server that is gone had claimed is run by another, or by itself after a restart.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

use crate::http::error::ApiError;
use crate::http::state::AppState;
use crate::http::state::batches::{BATCH, BatchObject, MESSAGE_BATCH, OPEN, URGENCY};
use crate::http::state::packing::unpack;
use crate::store::{ClaimedLine, LineState, now_ms};
use run::{Run, Stored};

mod background;
mod line;
mod run;

/// How long a claim holds without a heartbeat.
const LEASE: Duration = Duration::from_secs(15);
const HEARTBEAT: Duration = Duration::from_secs(4);
/// How often to look for work that another server has stored or left.
const LOOK: Duration = Duration::from_secs(1);
/// How often to remove what has expired.
const UPKEEP: Duration = Duration::from_mins(1);
/// Responses in the background that run at once.
const BACKGROUND: usize = 32;
/// Batches that a server looks after.
const MOST_OPEN: i64 = 1000;

/// A running worker.
#[derive(Debug)]
pub(super) struct Worker {
    state: AppState,
    holder: String,
    tasks: [JoinHandle<()>; 3],
}

impl Worker {
    /// Starts to run stored requests through `router`.
    pub(super) fn start(state: &AppState, router: Router) -> Self {
        let holder = Uuid::new_v4().simple().to_string();
        let runner = Runner {
            state: state.clone(),
            router,
            holder: holder.clone(),
            running: [Running::default(), Running::default()],
        };
        let tasks = [
            tokio::spawn(runner.work()),
            tokio::spawn(beat(state.clone(), holder.clone())),
            tokio::spawn(keep(state.clone())),
        ];
        Self { state: state.clone(), holder, tasks }
    }

    /// Ends it; what it had claimed can be claimed at once.
    pub(super) async fn stop(self) {
        for task in &self.tasks {
            task.abort();
        }
        if let Err(error) = self.state.store.release_lines(&self.holder).await {
            tracing::debug!(%error, "claimed lines are free once their lease is over");
        }
    }
}

/// What runs now, by batch and line.
#[derive(Clone, Debug, Default)]
struct Running(Arc<Mutex<HashSet<(String, i64)>>>);

impl Running {
    fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Until the guard goes; `None` if it runs already.
    fn begin(&self, line: &ClaimedLine) -> Option<Place> {
        let key = (line.batch.clone(), line.number);
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(key.clone()).then(|| Place { running: self.clone(), key })
    }
}

/// A place among what runs.
#[derive(Debug)]
struct Place {
    running: Running,
    key: (String, i64),
}

impl Drop for Place {
    fn drop(&mut self) {
        self.running.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// Claims lines and runs them.
struct Runner {
    state: AppState,
    router: Router,
    holder: String,
    /// Of responses in the background, and of lines of batches.
    running: [Running; 2],
}

impl Runner {
    async fn work(self) {
        // Its end ends what it runs.
        let mut tasks = JoinSet::new();
        let mut fails = false;
        loop {
            while tasks.try_join_next().is_some() {}
            match self.claim(&mut tasks).await {
                Ok(()) => fails = false,
                Err(error) => {
                    if !fails {
                        tracing::warn!(%error, "stored requests can't be claimed now");
                    }
                    fails = true;
                }
            }
            let _ = tokio::time::timeout(LOOK, self.state.work.notified()).await;
        }
    }

    /// Starts what there is to do and room for.
    async fn claim(&self, tasks: &mut JoinSet<()>) -> Result<(), ApiError> {
        if self.state.is_draining() {
            return Ok(());
        }
        let [background, batches] = &self.running;
        let own = background.count() + batches.count();
        let others = self.state.admission.in_use() > own;
        // Beside others, one line at a time: it keeps the batch going and is hardly felt.
        let lines = self.state.config.store.batch_lines.min(if others { 1 } else { usize::MAX });
        for (urgency, running, most) in [(0, background, BACKGROUND), (URGENCY, batches, lines)] {
            let room = most.saturating_sub(running.count());
            if room == 0 {
                continue;
            }
            let models = self.models();
            let (count, lease) = (i64::try_from(room).unwrap_or(i64::MAX), lease());
            let store = &self.state.store;
            let claimed = store.claim_lines(&self.holder, lease, &models, urgency, count).await?;
            for line in claimed {
                let Some(place) = running.begin(&line) else { continue };
                let run_of = Run {
                    state: self.state.clone(),
                    router: self.router.clone(),
                    holder: self.holder.clone(),
                    line,
                };
                let state = self.state.clone();
                tasks.spawn(async move {
                    run(run_of).await;
                    drop(place);
                    state.work.notify_one();
                });
            }
        }
        Ok(())
    }

    /// The models whose lines can be run here.
    fn models(&self) -> Vec<String> {
        let adapters = self.state.adapters.all();
        let adapters = adapters.iter().map(|served| served.adapter.name().to_owned());
        [self.state.model_name().to_owned()].into_iter().chain(adapters).collect()
    }
}

/// Until when a claim of now holds.
fn lease() -> i64 {
    now_ms() + i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX)
}

/// Says that this server still has what it claimed.
async fn beat(state: AppState, holder: String) {
    let mut interval = tokio::time::interval(HEARTBEAT);
    loop {
        interval.tick().await;
        if let Err(error) = state.store.prolong_leases(&holder, lease()).await {
            tracing::debug!(%error, "leases could not be prolonged");
        }
    }
}

/// Ends batches that have nothing left to do, and removes what has expired.
async fn keep(state: AppState) {
    let mut looks = tokio::time::interval(LOOK);
    let mut upkeep = tokio::time::interval(UPKEEP);
    loop {
        let kept = tokio::select! {
            _ = looks.tick() => advance(&state).await,
            _ = upkeep.tick() => state.store.remove_expired().await.map_err(ApiError::from),
        };
        if let Err(error) = kept {
            tracing::debug!(%error, "the store could not be looked after");
        }
    }
}

async fn advance(state: &AppState) -> Result<(), ApiError> {
    let open = state.store.all(OPEN, MOST_OPEN).await?;
    state.metrics.set_open_batches(open.len());
    let mut waiting = 0;
    for part in open {
        let kind = [BATCH, MESSAGE_BATCH].into_iter().find(|kind| *kind == part.key.id);
        let Some(kind) = kind else { continue };
        let (owner, id) = (&part.key.owner, &part.key.parent);
        let batch = BatchObject::find(&state.store, kind, owner, id).await?;
        waiting += batch.batch.counts(&state.store, id).await?.waiting;
        batch.advance(&state.store).await?;
    }
    state.metrics.set_waiting_batch_lines(usize::try_from(waiting).unwrap_or_default());
    Ok(())
}

/// Runs it and stores what comes of it. Dropping it leaves it to be claimed again.
async fn run(run: Run) {
    let stored: Stored = match unpack(&run.line.body) {
        Ok(stored) => stored,
        Err(error) => return run.answer(LineState::Failed, &error.body()).await,
    };
    if run.line.batch.starts_with("resp_") {
        background::respond(run, stored).await;
    } else {
        line::answer(run, stored).await;
    }
}
