//! The tiers behind the pool of KV blocks: host memory (`--kv-host-memory`) and a folder (`--kv-disk`), what
//! their content depends on, and their threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::device::host_memory;
use super::error::StartupError;
use crate::config::{EngineConfig, KvDisk};
use crate::engine::core::Tiers;
use crate::engine::handle::EngineHandle;
use crate::engine::memory::Size;
use crate::kernels::backend::{Backend, cpu_level};
use crate::kv_cache::BLOCK_SIZE;
use crate::kv_disk::files::Files;
use crate::kv_disk::namespace::{About, Namespace};
use crate::kv_disk::{ChangeSink, HostMemory, QUEUED_BYTES, Store, StoreConfig};
use crate::kv_events::{Change, EventSender};
use crate::metrics::MetricsHandle;
use crate::metrics::kv_tiers::KvTier;
use crate::runner::{KvFormat, KvShape};
use crate::weights::source::ModelSource;

/// How long a prompt waits for host memory at most, which answers at once unless the machine swaps.
const HOST_PATIENCE: Duration = Duration::from_secs(1);

/// What tells a model from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelIdentity {
    /// Its name, for people.
    pub name: String,
    /// The digest of its configuration and its weights.
    pub digest: [u8; 32],
}

impl ModelIdentity {
    /// The identity of a checkpoint, where the configuration has a use for it.
    pub(super) fn of(
        source: &ModelSource,
        config: &EngineConfig,
    ) -> Result<Option<Self>, StartupError> {
        let flags = [
            ("--kv-host-memory", config.kv_host_bytes.is_some()),
            ("--kv-disk", config.kv_disk.is_some()),
        ];
        let Some((flag, _)) = flags.into_iter().find(|(_, is_set)| *is_set) else {
            return Ok(None);
        };
        if config.ranks() > 1 {
            let (split, ranks) = (config.ranks_flag(), config.ranks());
            return Err(StartupError::KvTierRanks { flag, split, ranks });
        }
        let digest = source.digest().map_err(crate::models::ModelError::from)?;
        Ok(Some(Self { name: source.name.clone(), digest }))
    }
}

/// How the cache of a model is computed and stored.
pub(super) struct CacheFacts<'a> {
    pub(super) identity: Option<&'a ModelIdentity>,
    pub(super) format: KvFormat,
    pub(super) shape: &'a KvShape,
    pub(super) device: &'a candle_core::Device,
    pub(super) device_name: &'a str,
}

/// Opens the tiers that the configuration names, if it names any.
pub(super) fn open(
    config: &EngineConfig,
    facts: &CacheFacts<'_>,
    files: Arc<dyn Files>,
    handle: &EngineHandle,
    events: Option<&EventSender>,
    metrics: &MetricsHandle,
) -> Result<Option<Tiers>, StartupError> {
    let Some(identity) = facts.identity else { return Ok(None) };
    let about = about(facts, identity);
    let namespace = namespace(config, facts, identity, &about);
    let opened = |tier, root: PathBuf, max_bytes, files| {
        let events = events.cloned();
        Store::open(StoreConfig {
            root,
            max_bytes,
            namespace,
            about: about.clone(),
            block_bytes: facts.shape.block_bytes(facts.format),
            queued_bytes: QUEUED_BYTES,
            files,
            metrics: metrics.of_tier(tier),
            changes: events.map(|events| -> ChangeSink {
                Box::new(move |changes| events.send(Change::Behind(tier, changes)))
            }),
            wake: Box::new(handle.waker()),
        })
    };
    let mut stores = Vec::new();
    if let Some(bytes) = config.kv_host_bytes {
        check_host(bytes, facts.device)?;
        let root = Path::new("/host memory");
        let store = opened(KvTier::Host, root.to_owned(), bytes, Arc::new(HostMemory::new(root)))?;
        stores.push((KvTier::Host, store));
    }
    let mut patience = HOST_PATIENCE;
    if let Some(KvDisk { path, max_bytes, patience: longest }) = &config.kv_disk {
        let store = opened(KvTier::Disk, path.clone(), *max_bytes, files);
        let unusable = |error| StartupError::KvDisk { path: path.display().to_string(), error };
        stores.push((KvTier::Disk, store.map_err(unusable)?));
        patience = *longest;
    }
    if stores.is_empty() {
        return Ok(None);
    }
    Ok(Some(Tiers::new(stores, patience, metrics)?))
}

/// Refuses more host memory than there is.
fn check_host(bytes: u64, device: &candle_core::Device) -> Result<(), StartupError> {
    let (asked, free) = (usize::try_from(bytes).unwrap_or(usize::MAX), host_memory()?);
    if asked > free {
        return Err(StartupError::KvHostMemory { asked: Size(asked), free: Size(free) });
    }
    if device.is_cpu() {
        tracing::warn!(
            "--kv-host-memory copies what --kv-cache-memory would keep: on a CPU the whole KV cache is in \
             host memory"
        );
    }
    Ok(())
}

/// What the namespace stands for.
fn about(facts: &CacheFacts<'_>, identity: &ModelIdentity) -> About {
    let computed_on = match Backend::of(facts.device) {
        Backend::Cpu(level) => level.name().to_owned(),
        Backend::Cuda => format!("{} (CUDA)", facts.device_name),
        Backend::Portable => format!("{} (portable)", facts.device_name),
    };
    About {
        model: identity.name.clone(),
        kv_cache_dtype: format!("{:?}", facts.format).to_lowercase(),
        computed_on,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Everything that the bits of a block depend on besides its tokens and an adapter.
fn namespace(
    config: &EngineConfig,
    facts: &CacheFacts<'_>,
    identity: &ModelIdentity,
    about: &About,
) -> Namespace {
    let layout = format!("{BLOCK_SIZE} {:?} {:?}", facts.format, facts.shape);
    let weights = format!("{:?} {}", config.weight_kind, cpu_level().name());
    let gpu = format!("{} {}", config.deterministic, facts.device_name);
    Namespace::of(&[
        about.version.as_bytes(),
        about.computed_on.as_bytes(),
        &identity.digest,
        layout.as_bytes(),
        weights.as_bytes(),
        gpu.as_bytes(),
    ])
}
