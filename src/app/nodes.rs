//! A model whose ranks are on several machines (`--nnodes`). Machine 0 waits for the others; each of them keeps
//! its ranks running: a process for each, which ends with the group and is started again for the next.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::choice::ModelChoice;
use super::ranks;
use crate::config::{EngineConfig, Nodes};
use crate::runner::ranks::{Hello, JoinError, Leader, Link, Meeting, Secret, join};
use crate::weights::source::ModelSource;

/// How long a rank waits until it looks for rank 0 again.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the log says that it does.
const REPORT: Duration = Duration::from_secs(15);
/// How long the name of machine 0 may be unknown: clusters learn names of new machines late.
const NAMING: Duration = Duration::from_mins(2);

/// Rank 0 with all others: first those of other machines, which may take long to come, then those of this one.
///
/// # Errors
/// When the secret can't be read, the address is not this machine's, or a process can't be started.
pub(super) fn leader(source: &ModelSource, config: &EngineConfig) -> anyhow::Result<Arc<Leader>> {
    let elsewhere = config.nodes.as_ref().map(|nodes| links(nodes, source, config)).transpose()?;
    ranks::start_others(config.ranks_per_node(), elsewhere.unwrap_or_default())
}

/// Waits for all ranks of the other machines.
fn links(nodes: &Nodes, source: &ModelSource, config: &EngineConfig) -> anyhow::Result<Vec<Link>> {
    let address = named(nodes)?;
    let (size, model) = (config.ranks(), common(source, config));
    let meeting = Meeting::at(&address, secret(&nodes.secret_file)?, size, model);
    let told =
        || format!("--master-addr {} --master-port {}", nodes.master_addr, nodes.master_port);
    let meeting = meeting.with_context(told)?;
    tracing::info!(?address, machines = nodes.count, "ranks on other machines are waited for");
    Ok(meeting.links(config.ranks_per_node()..size)?)
}

/// Keeps the ranks of a machine other than 0 running until `stop` resolves, and then until their group ends.
///
/// # Errors
/// When the model can't be opened, or rank 0 refuses a rank for good.
pub async fn compute(
    choice: ModelChoice,
    config: EngineConfig,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let nodes = config.nodes.clone().context("there is one machine alone")?;
    ranks::check(&choice, &config)?;
    let secret = secret(&nodes.secret_file)?;
    let here = config.ranks_per_node();
    // What is not here is downloaded, before rank 0 is told that this machine has it.
    let of_all = move || Ok::<_, anyhow::Error>(common(&choice.open()?, &config));
    let size = nodes.count * here;
    let model = tokio::task::spawn_blocking(of_all).await??;
    let stopping = Arc::new(AtomicBool::new(false));
    let (ended, mut ends) = unbounded_channel();
    for rank in nodes.rank * here..(nodes.rank + 1) * here {
        let keeper = Keeper {
            nodes: nodes.clone(),
            secret: secret.clone(),
            hello: Hello { rank, size, model: model.clone() },
            stopping: stopping.clone(),
        };
        keeper.start(ended.clone())?;
    }
    drop(ended);
    tokio::select! {
        () = stop => stopping.store(true, Ordering::Relaxed),
        // The others end with this process.
        Some(end) = ends.recv() => return end,
    }
    while let Some(end) = ends.recv().await {
        end?;
    }
    Ok(())
}

/// What keeps one rank running.
struct Keeper {
    nodes: Nodes,
    secret: Secret,
    hello: Hello,
    stopping: Arc<AtomicBool>,
}

impl Keeper {
    fn start(self, ended: UnboundedSender<anyhow::Result<()>>) -> io::Result<()> {
        let name = format!("rank {}", self.hello.rank);
        let keep = move || {
            // Nobody listens once the process ends.
            let _ = ended.send(self.keep());
        };
        thread::Builder::new().name(name).spawn(keep).map(drop)
    }

    fn keep(&self) -> anyhow::Result<()> {
        let Nodes { master_addr, master_port, .. } = &self.nodes;
        let rank = self.hello.rank;
        let mut told: Option<Instant> = None;
        while !self.stopping.load(Ordering::Relaxed) {
            match join((master_addr.as_str(), *master_port), &self.secret, &self.hello) {
                Ok(stream) => {
                    told = None;
                    tracing::info!(rank, "the rank has joined");
                    let status = ranks::start_behind(stream, rank)?.wait()?;
                    tracing::warn!(rank, %status, "the rank has ended, with its group or alone");
                }
                Err(JoinError::Broken(error)) => {
                    if told.is_none_or(|told| told.elapsed() > REPORT) {
                        told = Some(Instant::now());
                        tracing::warn!(rank, master_addr, master_port, %error, "rank 0 is not there yet");
                    }
                }
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!("rank {rank} can't join {master_addr}:{master_port}")
                    });
                }
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

fn secret(file: &Path) -> anyhow::Result<Secret> {
    Secret::read(file).with_context(|| format!("--rank-secret-file {}", file.display()))
}

/// The addresses that the name of machine 0 has, once it has any.
fn named(nodes: &Nodes) -> anyhow::Result<Vec<SocketAddr>> {
    let began = Instant::now();
    loop {
        match (nodes.master_addr.as_str(), nodes.master_port).to_socket_addrs() {
            Ok(addresses) => return Ok(addresses.collect()),
            Err(error) if began.elapsed() > NAMING => {
                return Err(error).with_context(|| format!("--master-addr {}", nodes.master_addr));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// What all ranks must have in common, as a text to compare and to show: the program, and a hash of the model
/// and of how it is computed.
fn common(source: &ModelSource, config: &EngineConfig) -> String {
    let EngineConfig { weight_kind, kv_cache_dtype, deterministic, .. } = config;
    let (bytes, split) = (source.weight_bytes(), config.ranks_flag());
    let settings = format!("{bytes} {weight_kind:?} {kv_cache_dtype:?} {deterministic} {split}");
    let hash =
        Sha256::new().chain_update(source.config.to_string()).chain_update(settings).finalize();
    let model = hash.iter().take(8).fold(0u64, |all, byte| (all << 8) | u64::from(*byte));
    format!("sconce {} with model {model:016x}", env!("CARGO_PKG_VERSION"))
}
