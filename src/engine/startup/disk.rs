//! The folder of `--kv-disk`: what its content depends on, and its threads.

use std::sync::Arc;

use super::error::StartupError;
use crate::config::{EngineConfig, KvDisk};
use crate::engine::core::Tier;
use crate::engine::handle::EngineHandle;
use crate::kernels::backend::{Backend, cpu_level};
use crate::kv_cache::BLOCK_SIZE;
use crate::kv_disk::files::Files;
use crate::kv_disk::namespace::{About, Namespace};
use crate::kv_disk::{ChangeSink, QUEUED_BYTES, Store, StoreConfig};
use crate::kv_events::{Change, EventSender};
use crate::metrics::MetricsHandle;
use crate::runner::{KvFormat, KvShape};
use crate::weights::source::ModelSource;

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
        if config.kv_disk.is_none() {
            return Ok(None);
        }
        if config.tensor_parallel > 1 {
            return Err(StartupError::KvDiskRanks { ranks: config.tensor_parallel });
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

/// Opens the folder that the configuration names, if it names one.
pub(super) fn open(
    config: &EngineConfig,
    facts: &CacheFacts<'_>,
    files: Arc<dyn Files>,
    handle: &EngineHandle,
    events: Option<EventSender>,
    metrics: &MetricsHandle,
) -> Result<Option<Tier>, StartupError> {
    let (Some(KvDisk { path, max_bytes, patience }), Some(identity)) =
        (&config.kv_disk, facts.identity)
    else {
        return Ok(None);
    };
    let computed_on = match Backend::of(facts.device) {
        Backend::Cpu(level) => level.name().to_owned(),
        Backend::Cuda => format!("{} (CUDA)", facts.device_name),
        Backend::Portable => format!("{} (portable)", facts.device_name),
    };
    let about = About {
        model: identity.name.clone(),
        kv_cache_dtype: format!("{:?}", facts.format).to_lowercase(),
        computed_on,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let store = Store::open(StoreConfig {
        root: path.clone(),
        max_bytes: *max_bytes,
        namespace: namespace(config, facts, identity, &about),
        about,
        block_bytes: facts.shape.block_bytes(facts.format),
        queued_bytes: QUEUED_BYTES,
        files,
        metrics: metrics.clone(),
        changes: events.map(|events| -> ChangeSink {
            Box::new(move |changes| events.send(Change::Disk(changes)))
        }),
        wake: Box::new(handle.waker()),
    });
    let tier = store.and_then(|store| Tier::new(store, *patience, metrics.clone()));
    tier.map(Some).map_err(|error| StartupError::KvDisk { path: path.display().to_string(), error })
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
