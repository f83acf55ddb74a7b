//! The processes that `sconce serve --tensor-parallel N` starts beside itself: each runs the same
//! command line, but instead of serving it computes what rank 0 asks for over its standard input.

use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, ensure};

use super::choice::ModelChoice;
use crate::config::EngineConfig;
use crate::engine::startup::follow;
use crate::runner::ranks::{Follower, Leader, Link};

/// Name of the subcommand that runs a rank.
pub const COMMAND: &str = "rank";
/// Name of the environment variable that holds the rank of a process.
const RANK: &str = "SCONCE_RANK";

/// Starts ranks 1 to `size - 1`, with the arguments of this process. They end with it, when their
/// standard input is closed.
pub(super) fn start_others(size: usize) -> anyhow::Result<Arc<Leader>> {
    let program = std::env::current_exe().context("this program can't be found")?;
    let arguments: Vec<_> = std::env::args_os().skip(2).collect();
    let link = |rank: usize| {
        let mut command = Command::new(&program);
        command.arg(COMMAND).args(&arguments).env(RANK, rank.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A Ctrl-C is for rank 0, which lets streams end first.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().with_context(|| format!("rank {rank} can't be started"))?;
        let (input, output) = pipes(&mut child)?;
        reap(child, rank)?;
        Ok(Link::new(format!("rank {rank}"), output, input))
    };
    let links = (1..size).map(link).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Arc::new(Leader::new(links)))
}

fn pipes(child: &mut Child) -> anyhow::Result<(ChildStdin, ChildStdout)> {
    let pipes = child.stdin.take().zip(child.stdout.take());
    pipes.context("a process was started without pipes")
}

/// Waits in the background until the process ends, so that the system can forget it.
fn reap(mut child: Child, rank: usize) -> std::io::Result<()> {
    let wait = move || match child.wait() {
        Ok(status) if status.success() => tracing::debug!(rank, "a rank has ended"),
        Ok(status) => tracing::error!(rank, %status, "a rank has failed"),
        Err(error) => tracing::error!(rank, %error, "a rank can't be waited for"),
    };
    std::thread::Builder::new().name(format!("rank {rank}")).spawn(wait).map(drop)
}

/// Lets signals to stop pass: a supervisor sends them to all processes of a service, and this one
/// is needed until rank 0 has let its streams end.
#[cfg(unix)]
fn outlive_signals() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    // The handler that replaces the default action stays once its listener is dropped.
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        drop(signal(kind)?);
    }
    Ok(())
}

/// Computes this process's part of the model for rank 0, until rank 0 ends.
///
/// # Errors
/// When no server started this process, or its part can't be loaded or computed.
pub fn follow_leader(choice: &ModelChoice, config: &EngineConfig) -> anyhow::Result<()> {
    #[cfg(unix)]
    outlive_signals()?;
    let rank = std::env::var(RANK).ok().and_then(|rank| rank.parse().ok());
    let rank = rank.filter(|rank| (1..config.tensor_parallel).contains(rank));
    let rank = rank.context("this subcommand is only for processes that `sconce serve` starts")?;
    let link = Link::new("rank 0", std::io::stdin(), std::io::stdout());
    let follower = Arc::new(Follower::new(link, rank, config.tensor_parallel));
    // What had to be downloaded, rank 0 has downloaded before it started this process.
    let choice = ModelChoice { offline: true, ..choice.clone() };
    let source = choice.open().inspect_err(|error| {
        // Rank 0 may have ended; then nobody is left to tell.
        let _ = follower.fail(&format!("{error:#}"));
    })?;
    Ok(follow(&source, config, &follower)?)
}

/// Refuses choices that can't be combined with several ranks.
pub(super) fn check(choice: &ModelChoice, size: usize) -> anyhow::Result<()> {
    ensure!(
        size == 1 || choice.adapters.is_empty(),
        "--lora-modules can't be used with --tensor-parallel"
    );
    ensure!(
        size == 1 || choice.draft_model.is_none(),
        "--draft-model can't be used with --tensor-parallel"
    );
    Ok(())
}
