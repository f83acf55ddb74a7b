//! Keeps what keys used: every few seconds it is written to the store, and servers that share one learn
//! what of their common limits is in use.

use std::time::Duration;

use super::state::AppState;

/// How often. What a server that dies has counted since is lost.
const EVERY: Duration = Duration::from_secs(1);

/// Writes until it is dropped.
pub(super) async fn keep(state: AppState) {
    let mut interval = tokio::time::interval(EVERY);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut fails = false;
    loop {
        interval.tick().await;
        let written = write(&state).await;
        if !written && !fails {
            tracing::warn!("what keys use is counted in memory until the store is there again");
        }
        fails = !written;
    }
}

/// Writes what was counted so far; whether that was possible.
pub(super) async fn write(state: &AppState) -> bool {
    let written = state.keys.write(&state.store).await;
    written.inspect_err(|error| tracing::debug!(%error, "usage could not be written")).is_ok()
}
