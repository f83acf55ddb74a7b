//! A server in this process, on a free loopback port, for commands that need a model of their own.

use std::net::SocketAddr;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::choice::ModelChoice;
use super::model::RunningModel;
use crate::config::{EngineConfig, ServerConfig};
use crate::http::state::AppState;
use crate::store::{Store, StorePlace};

/// Most bytes that such a server keeps for its clients.
const STORE_BYTES: u64 = 64 << 20;

/// A server that runs until it is dropped.
pub struct LocalServer {
    /// Where the server listens.
    pub url: String,
    _stop: oneshot::Sender<()>,
    _task: JoinHandle<()>,
}

impl LocalServer {
    /// Starts a server of `model`: a folder, a GGUF file or a hub id; `None` is the demo model.
    ///
    /// # Errors
    /// As [`RunningModel::start`], or when no port is free.
    pub async fn start(model: Option<String>) -> anyhow::Result<Self> {
        let choice = ModelChoice { model, ..ModelChoice::default() };
        let config = EngineConfig { max_num_seqs: 4, ..EngineConfig::default() };
        let start = move || RunningModel::start(&choice, &config);
        let running = tokio::task::spawn_blocking(start).await??;
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let config = ServerConfig {
            address: listener.local_addr()?,
            served_model_names: vec![running.name.clone()],
            ..ServerConfig::default()
        };
        let url = format!("http://{}", config.address);
        let store = Store::open(&StorePlace::Memory, STORE_BYTES)?;
        let state = AppState::new(running.into_server_parts(config, store).0);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let dropped = async {
                let _ = stopped.await;
            };
            if let Err(error) = crate::http::serve(listener, state, dropped).await {
                tracing::error!(%error, "the local server ended");
            }
        });
        Ok(Self { url, _stop: stop, _task: task })
    }
}
