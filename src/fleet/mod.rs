//! Several models in one server: each in a process of its own, loaded when it is asked for, and kept by
//! use, time and pins within a bound of memory.
//!
//! ```text
//! routes        what is answered here: lists, states, loading, metrics | everything else is passed on
//! keeper        carries out what residency decides; the processes' lives
//! roster        all models and their processes, as data
//! residency     who is loaded and who has to go: a state machine without clocks or processes
//! proxy         requests to a process, answers as they come | connection | state: what handlers share
//! child         one process | naming: the model of a request | exposition: metrics of all
//! catalog       what models there are | model: what is known of one before it is loaded
//! ```
//!
//! A crash, a slow load or a full queue of one model is no other model's business: nothing is shared but
//! the memory, which the plan of each model bounds. Knows no tensors; computes nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use tokio::sync::oneshot;

pub mod catalog;
mod child;
mod connection;
mod exposition;
mod keeper;
mod model;
mod naming;
mod proxy;
mod residency;
mod roster;
mod routes;
mod state;

pub use child::{ENDS_WITH_STDIN, Launch};
pub use keeper::KeeperSettings;
pub use model::{ModelFacts, ModelSpec, Origin};

use crate::config::ServerConfig;
use crate::http::Listeners;
use crate::http::front;
use keeper::Keeper;
use state::FleetState;
pub use state::{Catalog, ReadModels};

/// A server of several models, not yet listening.
pub struct Fleet {
    state: FleetState,
    folder: PathBuf,
}

impl Fleet {
    /// Reads the list of models. `single` is for a server of one model, which any name means.
    ///
    /// # Errors
    /// The list can't be read, or there is no folder for sockets.
    pub async fn new(
        config: ServerConfig,
        settings: KeeperSettings,
        catalog: Catalog,
        single: bool,
    ) -> anyhow::Result<Self> {
        let read = catalog.read.clone();
        let specs = tokio::task::spawn_blocking(move || read()).await??;
        let folder = socket_folder()?;
        let single = specs.first().filter(|_| single).map(|spec| Arc::new(spec.name.clone()));
        let keeper = Keeper::new(settings, folder.clone());
        for spec in &specs {
            let faulty = spec.facts.fault.as_deref();
            tracing::info!(model = spec.name, from = spec.model, faulty, "a model");
        }
        keeper.set_models(specs);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let state = FleetState {
            keeper,
            catalog,
            config: Arc::new(config),
            single,
            created: now.as_secs(),
            leaving: Arc::default(),
        };
        Ok(Self { state, folder })
    }

    /// Loads the models that are to be there from the start: pinned ones, or the only one.
    ///
    /// # Errors
    /// One can't be loaded.
    pub async fn load_at_start(&self) -> anyhow::Result<()> {
        let single = self.state.single.is_some();
        let mut views = self.state.keeper.views();
        views.retain(|view| single || view.spec.pinned);
        let loads = views.iter().map(|view| self.state.keeper.acquire(&view.spec.name, true));
        for loaded in futures::future::join_all(loads).await {
            drop(loaded?);
        }
        Ok(())
    }

    /// Serves until `shutdown` resolves; then all processes let their requests end, and nothing is taken
    /// any more.
    pub async fn serve(self, listeners: Listeners, shutdown: impl Future<Output = ()>) {
        let Self { state, folder } = self;
        let (close, closed) = oneshot::channel::<()>();
        let closed = async move { drop(closed.await) }.shared();
        let (router, config) = (routes::router(state.clone()), state.config.clone());
        let keeper = state.keeper.clone();
        let pinned = keeper.views().into_iter().filter(|view| view.spec.pinned);
        for view in pinned {
            // Its process may be told to start by a request already; failures are in the log.
            let _ = keeper.load(&view.spec.name);
        }
        let mut server = tokio::spawn(async move {
            front::serve(listeners, router, &config, routes::needs_admin, closed).await;
        });
        shutdown.await;
        state.leaving.store(true, Ordering::Relaxed);
        let delay = state.config.drain_delay;
        if !delay.is_zero() {
            tracing::info!(?delay, "not ready any more, and still taking requests");
            tokio::time::sleep(delay).await;
        }
        tracing::info!("draining all models");
        state.keeper.end().await;
        drop(close);
        if tokio::time::timeout(front::LAST_WRITES, &mut server).await.is_err() {
            tracing::warn!("connections were still open at the end");
            server.abort();
        }
        if let Err(error) = std::fs::remove_dir_all(&folder) {
            tracing::debug!(%error, "the folder of sockets stays");
        }
    }
}

/// A new folder that only this user can enter; whoever can is let in by the models' processes.
fn socket_folder() -> std::io::Result<PathBuf> {
    let name = format!("sconce-{}-{}", std::process::id(), uuid::Uuid::new_v4().simple());
    // A path of a socket has at most about 100 bytes.
    let folder = std::env::temp_dir().join(&name[..name.len().min(32)]);
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&folder)?;
    Ok(folder)
}
