//! Signals that a server takes.

/// Exit status of a process that a second signal ended: that of SIGTERM, as shells tell it.
const ENDED: i32 = 128 + 15;

/// Resolves at SIGTERM or Ctrl-C. Another one ends the process at once, whatever is running.
pub(super) async fn first_stop_signal() {
    stop_signal().await;
    tokio::spawn(async {
        stop_signal().await;
        tracing::warn!("a second signal: ending without waiting for requests");
        std::process::exit(ENDED);
    });
}

/// Resolves at SIGTERM or Ctrl-C.
async fn stop_signal() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                tokio::select! {
                    _ = interrupt => {}
                    _ = terminate.recv() => {}
                }
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM can't be caught; Ctrl-C still drains");
                let _ = interrupt.await;
            }
        }
    }
    #[cfg(not(unix))]
    let _ = interrupt.await;
}

/// SIGHUP, where there is one.
pub(super) struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangup {
    /// From now on the signal doesn't end the process.
    pub(super) fn new() -> Self {
        Self {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())
                .inspect_err(|error| tracing::warn!(%error, "SIGHUP can't be caught"))
                .ok(),
        }
    }

    /// Resolves at the next one.
    pub(super) async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}
