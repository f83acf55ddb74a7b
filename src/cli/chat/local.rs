//! The one place where `chat` starts a model of its own.

use anyhow::bail;

/// Starts the server in this process on a free loopback port and returns its address. `model` is a
/// folder, a GGUF file or a hub id; `None` is the model that `serve` takes without `--model`.
pub(super) async fn start(model: Option<String>) -> anyhow::Result<LocalServer> {
    bail!(
        "can't start {}: give --url of a running server",
        model.as_deref().unwrap_or("the demo model")
    )
}

/// Runs until it is dropped.
pub(super) struct LocalServer {
    pub(super) url: String,
}
