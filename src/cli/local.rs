//! A server in this process, on a free loopback port, for commands that need a model of their own.

use std::net::SocketAddr;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::model::{self, ModelChoice};
use super::serve::server_parts;
use crate::config::{EngineConfig, ServerConfig};
use crate::http::state::AppState;

/// Runs until it is dropped.
pub(super) struct LocalServer {
    pub(super) url: String,
    _stop: oneshot::Sender<()>,
    _task: JoinHandle<()>,
}

/// Starts a server; `model` is a folder, a GGUF file or a hub id, `None` the demo model.
pub(super) async fn start(model: Option<String>) -> anyhow::Result<LocalServer> {
    let choice = ModelChoice { model, ..ModelChoice::default() };
    let config = EngineConfig { max_num_seqs: 4, ..EngineConfig::default() };
    let running = tokio::task::spawn_blocking(move || model::start(&choice, &config)).await??;
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let config = ServerConfig {
        address: listener.local_addr()?,
        served_model_names: vec![running.name.clone()],
        ..ServerConfig::default()
    };
    let url = format!("http://{}", config.address);
    let state = AppState::new(server_parts(running, config));
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let dropped = async {
            let _ = stopped.await;
        };
        if let Err(error) = crate::http::serve(listener, state, dropped).await {
            tracing::error!(%error, "the local server ended");
        }
    });
    Ok(LocalServer { url, _stop: stop, _task: task })
}
