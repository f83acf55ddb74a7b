//! Log lines on standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// How a log line is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

impl LogFormat {
    /// Starts logging for this process.
    pub(super) fn start(self) {
        let filter =
            EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,hf_hub=off"));
        let builder =
            tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let installed = match self {
            Self::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
            Self::Json => builder.json().try_init(),
        };
        // Only a second server in one process finds a logger installed, and may use it.
        drop(installed);
    }
}
