//! All models with what is known of their processes: plain data, which one lock keeps.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tokio::sync::{Notify, oneshot};

use super::child::Address;
use super::model::ModelSpec;
use super::residency::{Id, Residency, Stage};

/// Why a request can't have its model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// No model has that name.
    #[error("there is no model {0}")]
    Unknown(String),
    /// It isn't loaded, and requests don't have models loaded.
    #[error("{0} is not loaded")]
    NotLoaded(String),
    /// It can't be had now; for so many seconds if that is known.
    #[error("{0}")]
    Unavailable(String, Option<u64>),
}

/// What a process said of its model, kept while it is gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    /// Its entry of `/v1/models`.
    pub(super) entry: Option<Value>,
    /// `/props`.
    pub(super) props: Option<Value>,
    /// `/api/show`.
    pub(super) shown: Option<Value>,
    /// `/metrics`, from just before its end.
    pub(super) metrics: Option<String>,
}

/// A model as others see it.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) spec: Arc<ModelSpec>,
    pub(super) stage: Stage,
    /// Its process has ended because nobody asked for it, or somebody had it sleep.
    pub(super) sleeps: bool,
    /// Why its last process ended by itself, and with what status.
    pub(super) failure: Option<(String, Option<i32>)>,
    pub(super) requests: [usize; 2],
    pub(super) expires: Option<Instant>,
    pub(super) address: Option<Address>,
    pub(super) process: Option<u32>,
    pub(super) snapshot: Snapshot,
    pub(super) loads: u64,
    pub(super) failures: u64,
}

/// A model; `T` is what those are told who wait for it.
#[derive(Debug)]
pub(super) struct Model<T> {
    pub(super) spec: Arc<ModelSpec>,
    /// Counts its processes.
    pub(super) generation: u64,
    pub(super) running: Option<Running>,
    pub(super) waiters: Vec<Waiter<T>>,
    pub(super) snapshot: Snapshot,
    pub(super) sleeps: bool,
    pub(super) failure: Option<(String, Option<i32>)>,
    pub(super) failures: u64,
    /// To be forgotten once its process has ended.
    pub(super) removed: bool,
}

/// A process.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) process: u32,
    pub(super) address: Option<Address>,
    pub(super) stop: Arc<Notify>,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiter<T> {
    pub(super) number: u64,
    pub(super) tell: oneshot::Sender<T>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Roster<T> {
    pub(super) residency: Residency,
    pub(super) models: Vec<Option<Model<T>>>,
    pub(super) waiters: u64,
    /// No process is started any more.
    pub(super) ends: bool,
}

impl<T> Model<T> {
    pub(super) fn new(spec: Arc<ModelSpec>) -> Self {
        Self {
            spec,
            generation: 0,
            running: None,
            waiters: Vec::new(),
            snapshot: Snapshot::default(),
            sleeps: false,
            failure: None,
            failures: 0,
            removed: false,
        }
    }
}

impl<T> Roster<T> {
    pub(super) fn model(&mut self, id: Id) -> &mut Model<T> {
        self.models[id].as_mut().expect("the model is there as long as its process is")
    }

    /// The model of this name; those with it as their own come first.
    pub(super) fn find(&self, name: &str) -> Option<Id> {
        let by = |is: &dyn Fn(&ModelSpec) -> bool| {
            self.models.iter().position(|model| {
                model.as_ref().is_some_and(|model| !model.removed && is(&model.spec))
            })
        };
        by(&|spec| spec.name == name).or_else(|| by(&|spec| spec.is_called(name)))
    }

    pub(super) fn view(&self, id: Id) -> Option<View> {
        let model = self.models[id].as_ref().filter(|model| !model.removed)?;
        Some(View {
            spec: model.spec.clone(),
            stage: self.residency.stage(id),
            sleeps: model.sleeps,
            failure: model.failure.clone(),
            requests: self.residency.requests(id),
            expires: self.residency.expires(id),
            address: model.running.as_ref().and_then(|running| running.address.clone()),
            process: model.running.as_ref().map(|running| running.process),
            snapshot: model.snapshot.clone(),
            loads: model.generation,
            failures: model.failures,
        })
    }

    pub(super) fn starting(&mut self, id: Id) -> (Id, Arc<Notify>) {
        let stop = Arc::new(Notify::new());
        let model = self.model(id);
        model.generation += 1;
        model.running = Some(Running { process: 0, address: None, stop: stop.clone() });
        (id, stop)
    }

    /// Its process has ended. If it was idle until its time was over it sleeps.
    pub(super) fn gone(&mut self, id: Id) {
        self.model(id).running = None;
    }

    /// Why a model isn't there.
    pub(super) fn refusal(&self, id: Id) -> Refusal {
        let model = self.models[id].as_ref();
        let name = model.map_or("the model", |model| &model.spec.name);
        let why = model.and_then(|model| model.failure.as_ref());
        let why = why.map_or("its process has ended", |(why, _)| why);
        Refusal::Unavailable(format!("{name} is not there: {why}"), Some(1))
    }

    /// Forgets a model, now or once its process has ended.
    pub(super) fn forget(&mut self, id: Id) {
        if self.model(id).running.is_none() {
            return self.drop_model(id);
        }
        self.model(id).removed = true;
        self.residency.dismiss(id);
    }

    pub(super) fn drop_model(&mut self, id: Id) {
        self.models[id] = None;
        self.residency.remove(id);
    }
}
