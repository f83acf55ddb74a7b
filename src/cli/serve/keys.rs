//! The file of `--api-key-file`, read at the start and again whenever it changes.

use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;

use super::signals::Hangup;
use crate::config::ServerConfig;
use crate::http::state::AppState;
use crate::http::state::keys::check_file;

/// How often the file is looked at.
const CHECK: Duration = Duration::from_secs(10);

/// Checks the file, if there is one, before anything is loaded.
pub(super) fn check(config: &ServerConfig) -> anyhow::Result<()> {
    check_file(config).map_err(anyhow::Error::msg).context("--api-key-file can't be used")
}

/// Reads the file, if there is one.
pub(super) fn read(state: &AppState) -> anyhow::Result<()> {
    let read = state.read_key_file().map_err(anyhow::Error::msg);
    read.context("--api-key-file can't be used").map(drop)
}

/// Reads it again when it changes, or at SIGHUP. One that can't be used changes nothing but the log.
///
/// The task holds the state, and with it the engine, until it is aborted.
pub(super) fn keep_new(state: AppState) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut hangup = Hangup::new();
        let mut told = String::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK) => {}
                () = hangup.next() => told.clear(),
            }
            match state.read_key_file() {
                Ok(true) => tracing::info!("the key file was read again"),
                Ok(false) => told.clear(),
                Err(error) => {
                    if error != told {
                        tracing::error!(error, "the keys stay as they were");
                    }
                    told = error;
                }
            }
        }
    })
}
