//! `sconce health`: is the server ready? The exit status answers, so that a container without a
//! shell or curl can check itself.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::cli::client::ApiClient;

/// Ask a running server whether it is ready; exit status 0 means yes.
#[derive(Clone, Debug, clap::Args)]
pub struct HealthArgs {
    /// Address of the server.
    #[arg(long, value_name = "URL", env = "SCONCE_URL", default_value = "http://127.0.0.1:8000")]
    pub url: String,

    /// Ask only whether the process answers (/health/live), not whether it can take requests
    /// (/health/ready).
    #[arg(long)]
    pub live: bool,

    /// Give up after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    pub timeout: u64,
}

/// Prints the server's own words.
///
/// # Errors
/// The server can't be reached, does not answer in time or says that it is not ready.
pub async fn run(args: HealthArgs) -> anyhow::Result<()> {
    let client = ApiClient::new(&args.url, None)?;
    let path = if args.live { "/health/live" } else { "/health/ready" };
    let limit = Duration::from_secs(args.timeout);
    let answer = tokio::time::timeout(limit, client.get_text(path)).await;
    let (status, body) = answer
        .with_context(|| format!("no answer from {} within {} s", client.base(), args.timeout))??;
    let body = body.trim();
    if status != 200 {
        bail!("{path} answered {status}: {body}");
    }
    writeln!(std::io::stdout(), "{}", if body.is_empty() { "ok" } else { body })?;
    Ok(())
}
