//! Carries out what [`Residency`] decides: starts and ends processes, lets requests in, tells who waits.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast, oneshot};

use super::child::{self, Address, End, Launch, Process};
use super::connection;
use super::model::ModelSpec;
use super::residency::{Action, Arrival, Bounds, Id, Residency, Stage, Stay, Terms};
use super::roster::{Model, Refusal, Roster, View, Waiter};
use crate::engine::memory::Size;

/// How models are kept.
#[derive(Clone, Debug)]
pub struct KeeperSettings {
    /// How processes are started.
    pub launch: Launch,
    /// Bytes that all loaded models may take together.
    pub memory: u64,
    /// Most models at once; 0 is any number.
    pub most_models: usize,
    /// How long a model that is asked for stays before it must make room for another.
    pub minimum: Duration,
    /// How long a model may take to load.
    pub load_timeout: Duration,
    /// How long its requests may go on when it has to end with the server.
    pub drain_timeout: Duration,
    /// Whether a request may have its model loaded.
    pub autoload: bool,
}

/// What has happened to a model.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) model: String,
    pub(super) kind: &'static str,
    pub(super) data: Value,
}

/// How long a process may take to end beyond its own time to drain: what it stores takes a while.
const STORE_TIME: Duration = Duration::from_secs(25);
/// How long a process may take for what it is asked about itself.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// All models, with those who wait for a lease.
type State = Roster<Result<Lease, Refusal>>;

#[derive(Debug)]
struct Inner {
    settings: KeeperSettings,
    /// Where sockets lie.
    folder: PathBuf,
    state: Mutex<State>,
    changed: Notify,
    events: broadcast::Sender<Event>,
}

/// Keeps models in memory. Clones are of one keeper.
#[derive(Clone, Debug)]
pub(super) struct Keeper(Arc<Inner>);

/// The right to send a request to a model's process, which stays as long as this is there.
#[derive(Debug)]
pub(super) struct Lease {
    keeper: Keeper,
    id: Id,
    generation: u64,
    pub(super) address: Address,
    pub(super) name: String,
    /// How long the model is to stay without further requests, if the request says so.
    pub(super) ttl: Option<Stay>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.keeper.lock();
        let current = state.models[self.id].as_ref().map(|model| model.generation);
        if current == Some(self.generation) {
            state.residency.end(self.id, self.ttl, Instant::now());
        }
        drop(state);
        self.keeper.0.changed.notify_one();
    }
}

impl Keeper {
    /// The right to ask a process that is ready.
    fn lease(&self, roster: &State, id: Id) -> Option<Lease> {
        let model = roster.models[id].as_ref()?;
        Some(Lease {
            keeper: self.clone(),
            id,
            generation: model.generation,
            address: model.running.as_ref()?.address.clone()?,
            name: model.spec.name.clone(),
            ttl: None,
        })
    }

    /// A keeper of no models, whose sockets lie in `folder`.
    pub(super) fn new(settings: KeeperSettings, folder: PathBuf) -> Self {
        let bounds = Bounds {
            memory: settings.memory,
            models: settings.most_models,
            minimum: settings.minimum,
        };
        let state = Roster {
            residency: Residency::new(bounds),
            models: Vec::new(),
            waiters: 0,
            ends: false,
        };
        let keeper = Self(Arc::new(Inner {
            settings,
            folder,
            state: Mutex::new(state),
            changed: Notify::new(),
            events: broadcast::channel(256).0,
        }));
        tokio::spawn(keeper.clone().decide());
        keeper
    }

    pub(super) fn settings(&self) -> &KeeperSettings {
        &self.0.settings
    }

    pub(super) fn events(&self) -> broadcast::Receiver<Event> {
        self.0.events.subscribe()
    }

    pub(super) fn tell(&self, model: &str, event: &'static str, data: Value) {
        // Whether anybody listens or not.
        let _ = self.0.events.send(Event { model: model.to_owned(), kind: event, data });
    }

    /// Makes `specs` the models that there are: new ones can be loaded from now on, changed ones are as
    /// they are now from their next load on, and others end with their requests.
    pub(super) fn set_models(&self, specs: Vec<ModelSpec>) {
        let now = Instant::now();
        let mut state = self.lock();
        for id in 0..state.models.len() {
            let Some(model) = &state.models[id] else { continue };
            if !specs.iter().any(|spec| spec.name == model.spec.name) {
                state.forget(id);
            }
        }
        for spec in specs {
            let terms = Terms { need: spec.facts.need, pinned: spec.pinned, ttl: spec.ttl };
            let spec = Arc::new(spec);
            let known = state
                .models
                .iter()
                .position(|model| model.as_ref().is_some_and(|model| model.spec.name == spec.name));
            let Some(id) = known else {
                state.residency.add(terms, now);
                state.models.push(Some(Model::new(spec)));
                continue;
            };
            let changed = state.model(id).spec != spec;
            state.model(id).removed = false;
            if changed {
                state.model(id).spec = spec;
                state.residency.change(id, terms);
                // What runs is not what is listed any more.
                state.residency.dismiss(id);
            }
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// Forgets one model.
    pub(super) fn remove(&self, name: &str) {
        let mut state = self.lock();
        if let Some(id) = state.find(name) {
            state.forget(id);
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// All models, in their order.
    pub(super) fn views(&self) -> Vec<View> {
        let state = self.lock();
        let ids = 0..state.models.len();
        ids.filter_map(|id| state.view(id)).collect()
    }

    /// The model that a name means.
    pub(super) fn view(&self, name: &str) -> Option<View> {
        let state = self.lock();
        state.find(name).and_then(|id| state.view(id))
    }

    /// Bytes that loaded models take.
    pub(super) fn taken(&self) -> u64 {
        self.lock().residency.taken()
    }

    /// Waits until a request may go to the model of this name, which is loaded for it. Giving up the
    /// wait gives up the place in the queue.
    pub(super) async fn acquire(&self, name: &str, autoload: bool) -> Result<Lease, Refusal> {
        let wait = {
            let mut state = self.lock();
            let id = state.find(name).ok_or_else(|| Refusal::Unknown(name.to_owned()))?;
            if let Some(fault) = &state.model(id).spec.facts.fault {
                return Err(Refusal::Unavailable(format!("{name} can't be loaded: {fault}"), None));
            }
            let ends = state.ends;
            if ends {
                let message = "the server is shutting down".to_owned();
                return Err(Refusal::Unavailable(message, Some(1)));
            }
            if !autoload && state.residency.stage(id) == Stage::Absent {
                return Err(Refusal::NotLoaded(name.to_owned()));
            }
            match state.residency.arrive(id, Instant::now()) {
                Arrival::Runs => match self.lease(&state, id) {
                    Some(lease) => return Ok(lease),
                    // Its end is about to be seen.
                    None => return Err(state.refusal(id)),
                },
                Arrival::Paused(pause) => {
                    let Refusal::Unavailable(why, _) = state.refusal(id) else {
                        return Err(state.refusal(id));
                    };
                    return Err(Refusal::Unavailable(why, Some(pause.as_secs() + 1)));
                }
                Arrival::TooLarge(most) => return Err(self.too_large(&state, id, most)),
                Arrival::Waits => {
                    state.waiters += 1;
                    let number = state.waiters;
                    let (tell, told) = oneshot::channel();
                    state.model(id).waiters.push(Waiter { number, tell });
                    (Waiting { keeper: self, id, number }, told)
                }
            }
        };
        let (_waiting, told) = wait;
        self.0.changed.notify_one();
        let ended = Refusal::Unavailable("the server is shutting down".to_owned(), Some(1));
        told.await.unwrap_or(Err(ended))
    }

    fn too_large(&self, state: &State, id: Id, most: u64) -> Refusal {
        let spec = &state.models[id].as_ref().expect("the model is there").spec;
        let size = |bytes: u64| Size(usize::try_from(bytes).unwrap_or(usize::MAX));
        Refusal::Unavailable(
            format!(
                "{} can't be loaded: it is planned to take {}, and --models-memory {} leaves {} for it; \
                 raise that, give the model less KV cache, or quantize it",
                spec.name,
                size(spec.facts.need),
                size(self.0.settings.memory),
                size(most),
            ),
            None,
        )
    }

    /// Has a model loaded for nobody. Resolves at once; the error says why it can't be.
    pub(super) fn load(&self, name: &str) -> Result<(), Refusal> {
        let mut state = self.lock();
        let id = state.find(name).ok_or_else(|| Refusal::Unknown(name.to_owned()))?;
        state.residency.forgive(id);
        drop(state);
        let (keeper, name) = (self.clone(), name.to_owned());
        tokio::spawn(async move {
            if let Err(Refusal::Unavailable(why, _)) = keeper.acquire(&name, true).await {
                tracing::warn!(model = name, "{why}");
            }
        });
        Ok(())
    }

    /// Ends a model once its requests have ended. `sleeps` is how it is shown then.
    pub(super) fn unload(&self, name: &str, sleeps: bool) -> Result<(), Refusal> {
        let mut state = self.lock();
        let id = state.find(name).ok_or_else(|| Refusal::Unknown(name.to_owned()))?;
        state.residency.dismiss(id);
        state.model(id).sleeps = sleeps;
        drop(state);
        self.0.changed.notify_one();
        Ok(())
    }

    /// Ends all processes: each lets its requests end, for as long as the server may.
    pub(super) async fn end(&self) {
        let stops: Vec<Arc<Notify>> = {
            let mut state = self.lock();
            state.ends = true;
            let models = state.models.iter_mut().flatten();
            models
                .filter_map(|model| {
                    model.waiters.clear();
                    Some(model.running.as_ref()?.stop.clone())
                })
                .collect()
        };
        for stop in stops {
            stop.notify_one();
        }
        let any = || self.lock().models.iter().flatten().any(|model| model.running.is_some());
        while any() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is to be done whenever something has changed or its time has come.
    async fn decide(self) {
        loop {
            let alarm = self.step();
            let woken = self.0.changed.notified();
            match alarm {
                None => woken.await,
                Some(alarm) => {
                    // A moment later is past it for certain.
                    let until = tokio::time::Instant::from_std(alarm + Duration::from_millis(1));
                    let _ = tokio::time::timeout_at(until, woken).await;
                }
            }
        }
    }

    fn step(&self) -> Option<Instant> {
        let mut admitted = Vec::new();
        let mut starts = Vec::new();
        let alarm = {
            let mut state = self.lock();
            if state.ends {
                return None;
            }
            let (actions, alarm) = state.residency.next(Instant::now());
            for action in actions {
                match action {
                    Action::Load(id) => starts.push(state.starting(id)),
                    Action::Unload(id) => {
                        let expired = state.residency.has_expired(id);
                        let model = state.model(id);
                        model.sleeps |= expired;
                        if let Some(running) = &model.running {
                            running.stop.notify_one();
                        }
                    }
                    Action::Admit(id) => {
                        let waiters = std::mem::take(&mut state.model(id).waiters);
                        let leases = waiters
                            .into_iter()
                            .filter_map(|waiter| Some((waiter.tell, self.lease(&state, id)?)));
                        admitted.extend(leases);
                    }
                }
            }
            alarm
        };
        for (id, stop) in starts {
            tokio::spawn(self.clone().run_process(id, stop));
        }
        for (tell, lease) in admitted {
            // One whose receiver is gone ends here.
            drop(tell.send(Ok(lease)));
        }
        alarm
    }

    /// One process of a model, from its start to its end.
    async fn run_process(self, id: Id, stop: Arc<Notify>) {
        let (spec, generation) = {
            let mut state = self.lock();
            let model = state.model(id);
            (model.spec.clone(), model.generation)
        };
        self.tell(&spec.name, "model_status", json!({"status": "loading"}));
        tracing::info!(model = spec.name, "loading");
        let began = Instant::now();
        let socket = self.0.folder.join(format!("{id}-{generation}.sock"));
        let arguments = child::arguments(&spec, &socket);
        let mut process = match Process::start(&self.0.settings.launch, &spec.name, &arguments) {
            Ok(process) => process,
            Err(error) => return self.failed(id, &format!("it can't be started: {error}"), None),
        };
        if let Some(running) = &mut self.lock().model(id).running {
            running.process = process.id;
        }
        let address = tokio::select! {
            Ok(address) = &mut process.ready => address,
            end = &mut process.ended => return self.ended(id, end.ok()),
            () = stop.notified() => return self.stopped(id, process, true).await,
            () = tokio::time::sleep(self.0.settings.load_timeout) => {
                process.kill();
                let seconds = self.0.settings.load_timeout.as_secs();
                return self.failed(id, &format!("it was not loaded within {seconds} s"), None);
            }
        };
        self.learn(id, &address).await;
        tracing::info!(model = spec.name, "loaded after {:.2} s", began.elapsed().as_secs_f64());
        {
            let mut state = self.lock();
            let model = state.model(id);
            (model.failure, model.sleeps) = (None, false);
            if let Some(running) = &mut model.running {
                running.address = Some(address.clone());
            }
            state.residency.ready(id, Instant::now());
        }
        self.0.changed.notify_one();
        self.tell(&spec.name, "model_status", json!({"status": "loaded"}));
        tokio::select! {
            end = &mut process.ended => self.ended(id, end.ok()),
            () = stop.notified() => {
                self.keep_metrics(id, &address).await;
                self.stopped(id, process, false).await;
            }
        }
    }

    /// Asks a process about its model, for the time when it will be gone.
    async fn learn(&self, id: Id, address: &Address) {
        let name = self.lock().model(id).spec.name.clone();
        let key = self.0.settings.launch.key.as_deref();
        let ask = |path: &'static str, body: Option<Value>| {
            let answer = connection::ask_json(address, path, key, body);
            async move { tokio::time::timeout(ANSWER_TIME, answer).await.ok().flatten() }
        };
        let (models, props, shown) = tokio::join!(
            ask("/v1/models", None),
            ask("/props", None),
            ask("/api/show", Some(json!({ "model": name }))),
        );
        let entry = models.and_then(|models| models["data"].get(0).cloned());
        let mut state = self.lock();
        let snapshot = &mut state.model(id).snapshot;
        (snapshot.entry, snapshot.props, snapshot.shown) = (entry, props, shown);
    }

    async fn keep_metrics(&self, id: Id, address: &Address) {
        let key = self.0.settings.launch.key.as_deref();
        let asked = connection::ask_text(address, "/metrics", key);
        if let Ok(Some(text)) = tokio::time::timeout(ANSWER_TIME, asked).await {
            self.lock().model(id).snapshot.metrics = Some(text);
        }
    }

    /// Ends a process in good order; one that was never ready at once.
    async fn stopped(&self, id: Id, mut process: Process, at_once: bool) {
        if at_once {
            process.kill();
        }
        process.tell_to_end();
        let patience = self.0.settings.drain_timeout + STORE_TIME;
        if tokio::time::timeout(patience, &mut process.ended).await.is_err() {
            tracing::warn!(id = process.id, "a model's process did not end in time");
            process.kill();
        }
        let name = {
            let mut state = self.lock();
            state.gone(id);
            state.residency.left(id);
            let model = state.model(id);
            let (name, removed) = (model.spec.name.clone(), model.removed);
            if removed {
                state.drop_model(id);
            }
            name
        };
        tracing::info!(model = name, "unloaded");
        self.tell(&name, "model_status", json!({"status": "unloaded"}));
        self.0.changed.notify_one();
    }

    fn ended(&self, id: Id, end: Option<End>) {
        let reason = end.as_ref().map_or("its process is gone".to_owned(), End::reason);
        let code = end.and_then(|end| end.status?.code());
        self.failed(id, &reason, code);
    }

    /// A process could not be started, or has ended by itself.
    fn failed(&self, id: Id, reason: &str, code: Option<i32>) {
        let (name, pause, waiters, pinned) = {
            let mut state = self.lock();
            state.gone(id);
            let pause = state.residency.failed(id, Instant::now());
            let model = state.model(id);
            model.failure = Some((reason.to_owned(), code));
            model.failures += 1;
            let (name, removed) = (model.spec.name.clone(), model.removed);
            let waiters = std::mem::take(&mut model.waiters);
            let pinned = model.spec.pinned;
            if removed {
                state.drop_model(id);
            }
            (name, pause, waiters, pinned && !removed)
        };
        tracing::error!(model = name, "the model has failed: {reason}");
        let data = json!({"status": "unloaded", "failed": true, "exit_code": code});
        self.tell(&name, "model_status", data);
        let refusal = Refusal::Unavailable(
            format!("{name} is not there: {reason}"),
            Some(pause.as_secs() + 1),
        );
        for waiter in waiters {
            // Whoever waited may have gone.
            let _ = waiter.tell.send(Err(refusal.clone()));
        }
        if pinned {
            let keeper = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                // Another failure has another pause.
                let _ = keeper.acquire(&name, true).await;
            });
        }
        self.0.changed.notify_one();
    }
}

/// A request that waits for its model.
struct Waiting<'a> {
    keeper: &'a Keeper,
    id: Id,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.keeper.lock();
        let Some(model) = state.models[self.id].as_mut() else { return };
        // Who was told already isn't there any more.
        let at = model.waiters.iter().position(|waiter| waiter.number == self.number);
        let Some(at) = at else { return };
        let waiter = model.waiters.swap_remove(at);
        state.residency.give_up(self.id);
        drop(state);
        drop(waiter);
        self.keeper.0.changed.notify_one();
    }
}
