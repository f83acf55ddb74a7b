//! `sconce selftest URL`: does a server do what clients of the OpenAI API rely on?
//!
//! Each case is one behaviour that an SDK, an agent or a test suite was seen to need. A protocol that the
//! server doesn't have is no fault, and shown as absent; what it has must be right.
//!
//! ```text
//! case          what a case is, and what can come of it     | probe: requests, and answers taken apart
//! models errors chat streaming tools schemas completions embeddings responses messages agents: the cases
//! report        the table
//! ```
//!
//! # How to add a case
//!
//! 1. `src/cli/selftest/chat.rs`, or the file of another group: a row of `CASES`, which asks and judges.

mod agents;
mod case;
mod chat;
mod completions;
mod embeddings;
mod errors;
mod fault;
mod messages;
mod models;
mod probe;
mod report;
mod responses;
mod schemas;
mod streaming;
mod tools;

use std::time::{Duration, Instant};

use anyhow::bail;

use case::{Case, Group, Outcome};
use probe::Probe;
use report::Report;

/// All groups, in the order in which they run.
const GROUPS: [Group; 11] = [
    Group { name: "models", path: None, cases: &models::CASES },
    Group { name: "errors", path: None, cases: &errors::CASES },
    Group { name: "chat", path: Some("/v1/chat/completions"), cases: &chat::CASES },
    Group { name: "streaming", path: Some("/v1/chat/completions"), cases: &streaming::CASES },
    Group { name: "tools", path: Some("/v1/chat/completions"), cases: &tools::CASES },
    Group { name: "schemas", path: Some("/v1/chat/completions"), cases: &schemas::CASES },
    Group { name: "completions", path: Some("/v1/completions"), cases: &completions::CASES },
    Group { name: "embeddings", path: Some("/v1/embeddings"), cases: &embeddings::CASES },
    Group { name: "responses", path: Some("/v1/responses"), cases: &responses::CASES },
    Group { name: "messages", path: Some("/v1/messages"), cases: &messages::CASES },
    Group { name: "agents", path: None, cases: &agents::CASES },
];

/// Check whether a server does what clients of the OpenAI API rely on; exit status 1 means that it
/// doesn't.
#[derive(Clone, Debug, clap::Args)]
pub struct SelftestArgs {
    /// Address of the server, such as 127.0.0.1:8000.
    #[arg(value_name = "URL", default_value = "http://127.0.0.1:8000")]
    url: String,
    /// The model to ask [default: the first one that the server lists].
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Key for a server that asks for one.
    #[arg(long, value_name = "KEY", env = "SCONCE_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Run this group alone; repeat for more.
    #[arg(long, value_name = "GROUP", value_parser = clap::builder::PossibleValuesParser::new(GROUPS.map(|group| group.name)))]
    only: Vec<String>,
    /// Seconds that one case may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the cases and prints a table.
///
/// # Errors
/// The server can't be reached, or a case fails.
pub async fn run(args: SelftestArgs) -> anyhow::Result<()> {
    let probe = Probe::new(&args.url, args.model.as_deref(), args.api_key.as_deref()).await?;
    let chosen =
        |group: &&Group| args.only.is_empty() || args.only.iter().any(|name| name == group.name);
    let mut report = Report::new(&probe, args.json);
    for group in GROUPS.iter().filter(chosen) {
        let absent = match group.path {
            Some(path) => !probe.has(path).await,
            None => false,
        };
        for case in group.cases {
            let began = Instant::now();
            let outcome = if absent {
                Outcome::Absent(format!("{} is not served", group.path.unwrap_or_default()))
            } else {
                run_case(&probe, case, Duration::from_secs(args.timeout)).await
            };
            report.add(group.name, case.name, outcome, began.elapsed())?;
        }
    }
    let failed = report.finish()?;
    if failed > 0 {
        bail!("{failed} cases failed");
    }
    Ok(())
}

async fn run_case(probe: &Probe, case: &Case, limit: Duration) -> Outcome {
    match tokio::time::timeout(limit, (case.check)(probe)).await {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(fault)) => fault.into(),
        Err(_) => Outcome::Failed(format!("no answer within {} s", limit.as_secs())),
    }
}
