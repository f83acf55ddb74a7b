//! The processes that `sconce serve --tensor-parallel N` or `--pipeline-parallel N` starts beside itself: each
//! runs the same command line, but instead of serving it computes what rank 0 asks for over its standard input.

use std::net::TcpStream;
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

/// Starts the other ranks of this machine, of which there are `here` with this process, and leads them and those
/// `elsewhere`. They end with this process, when their standard input is closed.
pub(super) fn start_others(here: usize, elsewhere: Vec<Link>) -> anyhow::Result<Arc<Leader>> {
    let link = |rank: usize| {
        let mut command = command(rank)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("rank {rank} can't be started"))?;
        let (input, output) = pipes(&mut child)?;
        reap(child, rank)?;
        Ok(Link::new(format!("rank {rank}"), output, input))
    };
    let here = (1..here).map(link).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Arc::new(Leader::new(here.into_iter().chain(elsewhere).collect())))
}

/// A rank as a process of its own, with the arguments of this one.
fn command(rank: usize) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("this program can't be found")?;
    let mut command = Command::new(program);
    command.arg(COMMAND).args(std::env::args_os().skip(2)).env(RANK, rank.to_string());
    // A Ctrl-C is for rank 0, which lets streams end first.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Ok(command)
}

/// Starts a rank that has rank 0 at the other end of a connection.
#[cfg(unix)]
pub(super) fn start_behind(stream: TcpStream, rank: usize) -> anyhow::Result<Child> {
    let mut command = command(rank)?;
    let socket = std::os::fd::OwnedFd::from(stream);
    command.stdin(Stdio::from(socket.try_clone()?)).stdout(Stdio::from(socket));
    command.spawn().with_context(|| format!("rank {rank} can't be started"))
}

/// Starts a rank that has rank 0 at the other end of a connection.
#[cfg(not(unix))]
pub(super) fn start_behind(_: TcpStream, _: usize) -> anyhow::Result<Child> {
    anyhow::bail!("--nnodes needs a Unix system")
}

fn pipes(child: &mut Child) -> anyhow::Result<(ChildStdin, ChildStdout)> {
    let pipes = child.stdin.take().zip(child.stdout.take());
    pipes.context("a process was started without pipes")
}

/// How long a server goes on without one of its ranks: what waits for it ends with an error before, unless a
/// GPU does, which waits for ever.
const WITHOUT_RANK: std::time::Duration = std::time::Duration::from_secs(10);

/// Waits in the background until the process ends, so that the system can forget it. The server ends too if
/// it has failed.
fn reap(mut child: Child, rank: usize) -> std::io::Result<()> {
    let wait = move || match child.wait() {
        Ok(status) if status.success() => tracing::debug!(rank, "a rank has ended"),
        Ok(status) => {
            tracing::error!(rank, %status, "a rank has failed");
            std::thread::sleep(WITHOUT_RANK);
            std::process::exit(1);
        }
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

/// How often a rank looks whether the process that started it is still there.
#[cfg(unix)]
const CHECK: std::time::Duration = std::time::Duration::from_secs(1);

/// Ends this process once the one that started it is gone, which it may not notice by itself where rank 0 is
/// on another machine.
#[cfg(unix)]
fn end_with_parent() -> std::io::Result<()> {
    use std::os::unix::process::parent_id;
    let parent = parent_id();
    let watch = move || {
        while parent_id() == parent {
            std::thread::sleep(CHECK);
        }
        std::process::exit(1);
    };
    std::thread::Builder::new().name("parent".to_owned()).spawn(watch).map(drop)
}

/// The link over standard input and output, without their buffers, which look for ends of lines.
#[cfg(unix)]
fn link_to_leader() -> std::io::Result<Link> {
    use std::fs::File;
    use std::io::{BufReader, BufWriter};
    use std::os::fd::AsFd;

    const BUFFER: usize = 256 << 10;
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let reader = BufReader::with_capacity(BUFFER, input);
    Ok(Link::new("rank 0", reader, BufWriter::with_capacity(BUFFER, output)))
}

/// The link over standard input and output.
#[cfg(not(unix))]
fn link_to_leader() -> std::io::Result<Link> {
    Ok(Link::new("rank 0", std::io::stdin(), std::io::stdout()))
}

/// Computes this process's part of the model for rank 0, until rank 0 ends.
///
/// # Errors
/// When no server started this process, or its part can't be loaded or computed.
pub fn follow_leader(choice: &ModelChoice, config: &EngineConfig) -> anyhow::Result<()> {
    #[cfg(unix)]
    {
        outlive_signals()?;
        end_with_parent()?;
    }
    let rank = std::env::var(RANK).ok().and_then(|rank| rank.parse().ok());
    let rank = rank.filter(|rank| (1..config.ranks()).contains(rank));
    let rank = rank.context("this subcommand is only for processes that `sconce serve` starts")?;
    let follower = Arc::new(Follower::new(link_to_leader()?, rank, config.ranks()));
    // What had to be downloaded, the process has downloaded that started this one.
    let choice = ModelChoice { offline: true, ..choice.clone() };
    let source = choice.open().inspect_err(|error| {
        // Rank 0 may have ended; then nobody is left to tell.
        let _ = follower.fail(&format!("{error:#}"));
    })?;
    Ok(follow(&source, config, &follower)?)
}

/// Refuses choices that can't be combined with several ranks, and ranks that can't be on these machines.
pub(super) fn check(choice: &ModelChoice, config: &EngineConfig) -> anyhow::Result<()> {
    let (size, flag) = (config.ranks(), config.ranks_flag());
    let (tensors, stages) = (config.tensor_parallel, config.pipeline_parallel);
    ensure!(
        tensors == 1 || stages == 1,
        "--pipeline-parallel {stages} can't be used with --tensor-parallel {tensors}: a model is split by \
         layers or within them"
    );
    if let Some(nodes) = &config.nodes {
        let (rank, count) = (nodes.rank, nodes.count);
        ensure!(rank < count, "--node-rank {rank} is not below --nnodes {count}");
        ensure!(
            size.is_multiple_of(count),
            "{flag} {size} can't be divided by --nnodes {count}: each machine has equally many \
             ranks"
        );
    }
    ensure!(size == 1 || choice.adapters.is_empty(), "--lora-modules can't be used with {flag}");
    ensure!(size == 1 || choice.draft_model.is_none(), "--draft-model can't be used with {flag}");
    Ok(())
}
