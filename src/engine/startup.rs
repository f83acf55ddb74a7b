//! From a loaded model to a running engine: measure, plan, allocate, start the thread.

use std::sync::Arc;
use std::thread::JoinHandle;

use candle_core::DType;

use super::core::EngineCore;
use super::memory::{self, MemoryFacts, MemoryPlan, PlanError, WeightsFit};
use super::pace::Pace;
use super::{EngineHandle, EngineLimits};
use crate::config::{DeviceChoice, EngineConfig, Pooling, WeightKind};
use crate::kernels::cuda::graph::CudaGraph;
use crate::kernels::cuda::settings::GpuSettings;
use crate::kernels::pool::{self, PoolError};
use crate::kv_cache::{BLOCK_SIZE, KvCacheManager};
use crate::layers::group::{Alone, Group, connected};
use crate::metrics::MetricsHandle;
use crate::models::config::HfConfig;
use crate::models::{self, CausalLm, ModelError};
use crate::pooling::EmbeddingHead;
use crate::runner::ranks::Leader;
use crate::runner::{KvFormat, Runner};
use crate::scheduler::{Scheduler, SchedulerConfig};
use crate::weights::progress::ProgressSink;
use crate::weights::source::ModelSource;

pub mod adapters;
pub mod device;
pub mod encoder;
mod head;
pub mod ranks;

use device::{DeviceMemory, OpenDevice};

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
    /// The KV cache could not be allocated.
    #[error("the KV cache could not be allocated: {0}")]
    KvCache(#[from] candle_core::Error),
    /// A device that is not there.
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
    /// What sentence-transformers would do behind the network can't be done here.
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
    /// The system gave no thread.
    #[error("the engine thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// A model ready to run, and what startup knows of it.
pub struct LoadedModel {
    /// The model, its weights in memory.
    pub model: Box<dyn CausalLm>,
    /// Where it runs.
    pub device: OpenDevice,
    /// Bytes its matrices take.
    pub weight_bytes: usize,
    /// The element type that suits its KV cache.
    pub kv_dtype: DType,
    /// How it embeds texts.
    pub head: EmbeddingHead,
    /// Most tokens of a text to embed, where its author says so.
    pub max_text_len: Option<usize>,
    /// The way to the other ranks, if there are any.
    pub leader: Option<Arc<Leader>>,
}

impl LoadedModel {
    /// Builds the model that the source describes and reads its weights; `progress` is told of
    /// every tensor. With a leader it is rank 0's part of the model.
    pub fn load(
        source: &ModelSource,
        config: &EngineConfig,
        progress: ProgressSink,
        leader: Option<Arc<Leader>>,
    ) -> Result<Self, StartupError> {
        match leader {
            None => Self::load_part(source, config, progress, Arc::new(Alone)),
            Some(leader) => {
                let part = Self::load_part(source, config, progress, leader.clone())?;
                Ok(Self { leader: Some(leader), ..part })
            }
        }
    }

    /// The part of one rank of the group.
    fn load_part(
        source: &ModelSource,
        config: &EngineConfig,
        progress: ProgressSink,
        group: Arc<dyn Group>,
    ) -> Result<Self, StartupError> {
        if let Some(threads) = ranks::threads(config) {
            pool::start(threads)?;
        }
        let hf_config = HfConfig::from_value(&source.config)?;
        let EngineConfig { deterministic, enforce_eager: eager, .. } = *config;
        GpuSettings { deterministic, eager }.apply();
        let device = OpenDevice::open(config.device, group.rank(), group.size())?;
        let group = connected(group, &device.device)?;
        let needed = usize::try_from(source.weight_bytes()).unwrap_or(usize::MAX);
        // Processes on the CPU share its memory, as they share the weights.
        let parts = if device.device.is_cpu() { 1 } else { group.size() };
        let stored = needed / parts;
        let weights_fit = WeightsFit { stored, dtype: hf_config.dtype(), kind: config.weight_kind };
        weights_fit.check(device.memory()?.free, &device.name)?;
        let weights = source.weights(&device.device).with_progress(progress);
        let weights = weights.in_parallel(|count, work| pool::for_each_chunk(count, work));
        let weights = weights.rounded_to(config.weight_kind.map(WeightKind::ggml));
        let model = models::load_part(&hf_config, &weights, group)?;
        let hidden_size = model.hidden_size();
        tracing::info!(matrices = %weights.kept(), bytes = weights.kept().bytes(), "weights loaded");
        Ok(Self {
            model,
            device,
            weight_bytes: weights.kept().bytes(),
            kv_dtype: hf_config.dtype().unwrap_or(DType::F16),
            head: match &source.sentence_modules {
                Some(modules) => head::read(modules, config.pooling, hidden_size)?,
                None => EmbeddingHead::new(config.pooling.unwrap_or(Pooling::Last), true),
            },
            max_text_len: source.sentence_modules.as_ref().and_then(head::max_seq_length),
            leader: None,
        })
    }
}

/// A started engine. The thread ends when the last handle and stream are gone.
pub struct Engine {
    /// The way to it.
    pub handle: EngineHandle,
    /// How memory was shared out, where there is a KV cache to share it with.
    pub plan: Option<MemoryPlan>,
    /// Joins the engine thread.
    pub thread: JoinHandle<()>,
}

impl Engine {
    /// Plans memory, allocates the KV cache and starts the engine thread.
    pub fn start(
        config: &EngineConfig,
        loaded: LoadedModel,
        metrics: MetricsHandle,
    ) -> Result<Self, StartupError> {
        let LoadedModel { model, device, weight_bytes, kv_dtype, head, max_text_len, leader } =
            loaded;
        let kv_shape = model.kv_shape();
        let auto = KvFormat::of_dtype(kv_dtype).unwrap_or(KvFormat::F16);
        let kv_format = memory::kv_format(config.kv_cache_dtype, auto, &kv_shape)?;
        if !kv_format.runs_on(&device.device) {
            let (asked, device) = (config.kv_cache_dtype, device.name);
            return Err(PlanError::CacheDevice { asked, device }.into());
        }
        let (vocab_size, embedding_size) =
            (model.vocab_size(), head.embedding_size(model.hidden_size()));
        // Behind this all weights are in memory.
        let others = leader.as_ref().map(|leader| leader.wait_for_all()).transpose()?;
        // What a step takes is not to be taken from the KV cache. Several ranks would have to
        // compute it together.
        if !device.device.is_cpu() && leader.is_none() {
            let most = config.max_num_batched_tokens.min(model.max_position_embeddings()).max(1);
            let step = [most, config.max_num_seqs];
            Runner::rehearse(model.as_ref(), &device.device, step, kv_format)
                .map_err(StartupError::Rehearsal)?;
        }
        let memory = match config.kv_cache_bytes {
            // Not needed then, and not everywhere told.
            Some(bytes) => DeviceMemory { free: bytes, own: None },
            None => ranks::least(device.memory()?, &others.unwrap_or_default()),
        };
        let facts = MemoryFacts {
            block_bytes: kv_shape.block_bytes(kv_format),
            state_bytes: kv_shape.state_bytes(),
            weight_bytes,
            free_bytes: memory.free,
            own_bytes: memory.own,
            model_context: model.max_position_embeddings(),
        };
        let plan = MemoryPlan::new(config, facts)?;
        let longest_unchanged = model.longest_unchanged();
        let keeps_state = !kv_shape.states.is_empty();
        if keeps_state && config.prefix_cache {
            tracing::info!("no prefix cache: recurrent layers keep nothing of earlier tokens");
        }
        // Steps are begun ahead where they are recorded, which several ranks don't do.
        let lookahead = CudaGraph::wanted(&device.device) && leader.is_none() && !keeps_state;
        let runner = Runner::new(
            model,
            device.device,
            plan.num_blocks,
            kv_format,
            plan.max_num_seqs,
            leader,
        )?;
        let scheduler_config = SchedulerConfig {
            longest_unchanged,
            keeps_state,
            lookahead,
            max_num_seqs: plan.max_num_seqs,
            max_num_batched_tokens: config.max_num_batched_tokens,
            max_model_len: plan.max_model_len,
        };
        let kv_cache = KvCacheManager::new(plan.num_blocks, config.prefix_cache && !keeps_state);
        let scheduler = Scheduler::new(scheduler_config, kv_cache);
        let limits = EngineLimits {
            max_model_len: plan.max_model_len,
            max_text_len: max_text_len.unwrap_or(usize::MAX).clamp(1, plan.max_model_len),
            vocab_size,
            max_num_seqs: plan.max_num_seqs,
            block_size: BLOCK_SIZE,
            num_blocks: plan.num_blocks,
            embedding_size,
            generates: true,
        };
        metrics.set_cache_config(BLOCK_SIZE, plan.num_blocks);
        let (handle, commands) = EngineHandle::channel(limits);
        let pace = Pace::new(config.target_step_time);
        let shared = handle.shared.clone();
        let core = EngineCore::new(commands, shared, scheduler, pace, runner, head, metrics);
        let thread =
            std::thread::Builder::new().name("engine".to_owned()).spawn(move || core.run())?;
        Ok(Self { handle, plan: Some(plan), thread })
    }
}
