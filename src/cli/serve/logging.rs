//! What the server tells of its work: log lines on standard error, and spans to a collector.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use crate::config::LogConfig;
use crate::telemetry::Exporter;

#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// How log lines are written to standard error. RUST_LOG sets what is logged.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Write the bodies of requests to the log, prompts included; nothing else does.
    #[arg(long)]
    log_requests: bool,
    /// Milliseconds after which a request is told in the log, with where its time went; 0 for never.
    #[arg(long, default_value_t = 0, value_name = "MILLISECONDS")]
    slow_request_ms: u64,
    /// Collector that spans of requests are sent to, over OTLP with HTTP and protobuf
    /// [default: none].
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

impl OutputArgs {
    /// Whether log lines are JSON.
    pub(super) fn is_json(&self) -> bool {
        matches!(self.log_format, LogFormat::Json)
    }

    /// What is told of requests.
    pub(super) fn log_config(&self) -> LogConfig {
        let slower_than = Duration::from_millis(self.slow_request_ms);
        LogConfig {
            slower_than: (!slower_than.is_zero()).then_some(slower_than),
            bodies: self.log_requests,
        }
    }

    /// Starts logging for this process, and the way to the collector if there is one.
    pub(super) fn start(&self) -> anyhow::Result<Option<Exporter>> {
        let endpoint = self.otlp_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty());
        let exporter = endpoint.map(Exporter::start).transpose().map_err(anyhow::Error::msg);
        let exporter = exporter.context("--otlp-endpoint can't be used")?;
        self.start_with(exporter.as_ref());
        Ok(exporter)
    }

    /// Starts logging alone.
    pub(super) fn start_log(&self) {
        self.start_with(None);
    }

    fn start_with(&self, exporter: Option<&Exporter>) {
        let filter =
            EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,hf_hub=off"));
        let lines = fmt::layer().with_writer(std::io::stderr);
        let lines = match self.log_format {
            LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
            LogFormat::Json => lines.json().with_span_list(false).boxed(),
        };
        let spans = exporter.map(Exporter::layer);
        let installed = registry().with(lines.with_filter(filter)).with(spans).try_init();
        // Only a second server in one process finds a logger installed, and may use it.
        drop(installed);
    }
}
