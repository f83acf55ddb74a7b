//! Why the engine can't start.

use crate::config::DeviceChoice;
use crate::engine::memory::{PlanError, Size};
use crate::kernels::pool::PoolError;
use crate::kv_events::KvEventsError;
use crate::models::ModelError;
use crate::pictures::processor::ProcessorError;
use crate::sounds;

/// Why the engine can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// The checkpoint can't be loaded.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The kernels' threads can't be started.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Memory doesn't suffice, or the configuration contradicts itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The largest step can't be computed.
    #[error("the largest step fails: {0}; lower --max-num-batched-tokens or --max-num-seqs")]
    Rehearsal(candle_core::Error),
    /// Decode steps can't be captured as CUDA graphs.
    #[error("decode steps could not be captured: {0}; --enforce-eager does without")]
    Capture(candle_core::Error),
    /// The KV cache could not be allocated.
    #[error("the KV cache could not be allocated: {0}")]
    KvCache(#[from] candle_core::Error),
    /// The device doesn't exist, or this build can't use it.
    #[error("the model can't run on {device}: {reason}")]
    Device {
        /// What was asked for.
        device: DeviceChoice,
        /// Why not, and what would help.
        reason: String,
    },
    /// The system doesn't tell how much memory is free.
    #[error("free memory can't be measured ({0}); set --kv-cache-memory")]
    Memory(String),
    /// A module that sentence-transformers runs after the network is not supported.
    #[error("{module}: {reason}")]
    Module {
        /// The module's class and folder, or a file.
        module: String,
        /// What is wrong and what would work.
        reason: String,
    },
    /// A setting that the model has no use for.
    #[error("{setting} can't be used with an encoder model: {reason}")]
    Setting {
        /// As typed.
        setting: &'static str,
        /// Why, and what would work.
        reason: String,
    },
    /// The draft model can't be used.
    #[error("--draft-model {name} can't be used: {reason}")]
    Draft {
        /// The draft model.
        name: String,
        /// Why not.
        reason: String,
    },
    /// The folder of `--kv-disk` can't be used.
    #[error("--kv-disk {path} can't be used: {error}")]
    KvDisk {
        /// The folder.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
    /// Each of several ranks has its part of the KV cache alone.
    #[error(
        "{flag} can't be used with {split} {ranks}: each rank has its part of the KV cache alone"
    )]
    KvTierRanks {
        /// What asks for another tier.
        flag: &'static str,
        /// What asks for several ranks.
        split: &'static str,
        /// Processes that compute the model.
        ranks: usize,
    },
    /// There is not so much host memory.
    #[error("--kv-host-memory asks for {asked} of host memory, of which {free} are free")]
    KvHostMemory {
        /// What was asked for.
        asked: Size,
        /// What is left.
        free: Size,
    },
    /// What is cached can't be published.
    #[error("--kv-events-config: {0}")]
    KvEvents(#[from] KvEventsError),
    /// The vision tower or the audio encoder can't be loaded.
    #[error("the vision tower or the audio encoder can't be loaded: {0}")]
    Tower(String),
    /// The image processor of the checkpoint is not supported.
    #[error(transparent)]
    Processor(#[from] ProcessorError),
    /// The feature extractor of the checkpoint is not supported.
    #[error(transparent)]
    SoundProcessor(#[from] sounds::processor::ProcessorError),
    /// The system gave no thread.
    #[error("the engine thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
}
