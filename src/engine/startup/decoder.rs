//! A decoder: from its files to a model in memory, and from there to a running engine: measure, plan,
//! allocate, start the thread.

use std::sync::{Arc, mpsc};

use candle_core::DType;

use super::device::{DeviceMemory, OpenDevice};
use super::draft::LoadedDraft;
use super::engine::Engine;
use super::error::StartupError;
use super::tiers::{self, CacheFacts, ModelIdentity};
use super::{classifier, head, ranks, tower};
use crate::config::{EngineConfig, Pooling, WeightKind};
use crate::engine::core::EngineCore;
use crate::engine::handle::EngineHandle;
use crate::engine::limits::EngineLimits;
use crate::engine::memory::{self, MemoryFacts, MemoryPlan, PlanError, WeightsFit};
use crate::engine::pace::Pace;
use crate::kernels::cuda::graph::CudaGraph;
use crate::kernels::cuda::settings::GpuSettings;
use crate::kernels::pool;
use crate::kv_cache::{BLOCK_SIZE, KvCacheManager};
use crate::kv_disk::files::{Disk, Files};
use crate::kv_events;
use crate::layers::group::{Alone, Group, connected};
use crate::metrics::MetricsHandle;
use crate::models::audio::AudioEncoder;
use crate::models::classifier::ClassifierSpec;
use crate::models::config::HfConfig;
use crate::models::vision::Tower;
use crate::models::{self, CausalLm, Stage, Top, WithDraftHead};
use crate::pooling::PoolingHead;
use crate::runner::ranks::{Follower, Leader, RankMemory};
use crate::runner::{CacheSizes, DecodeBounds, HeadInput, KvFormat, LargestSteps, Runner};
use crate::scheduler::{Scheduler, SchedulerConfig};
use crate::speculation::{LARGEST_STEP, Speculation};
use crate::weights::Weights;
use crate::weights::progress::ProgressSink;
use crate::weights::source::ModelSource;

/// A decoder that is ready to run, and what startup knows of it.
pub struct LoadedModel {
    /// The model, with its weights in memory.
    pub model: Box<dyn CausalLm>,
    /// The device that the model runs on.
    pub device: OpenDevice,
    /// Bytes that the model's matrices take.
    pub weight_bytes: usize,
    /// The element type of the KV cache, unless the configuration names one.
    pub kv_dtype: DType,
    /// How hidden states become embeddings.
    pub head: PoolingHead,
    /// Most tokens of a text to embed, where its author says so.
    pub max_text_len: Option<usize>,
    /// The links to the other ranks, if there are any.
    pub leader: Option<Arc<Leader>>,
    /// What tells the model from others, where blocks are kept on disk.
    pub identity: Option<ModelIdentity>,
    /// How they are read and written.
    pub files: Arc<dyn Files>,
    /// What looks at pictures, if the model sees.
    pub tower: Option<Box<Tower>>,
    /// What hears sounds, if the model does.
    pub audio_encoder: Option<Box<AudioEncoder>>,
    /// What drafts its tokens, besides what is there already.
    pub draft: Option<LoadedDraft>,
}

impl LoadedModel {
    /// Builds the model that `source` describes and reads its weights; `progress` is told of every
    /// tensor. With a leader the result is rank 0's part of the model.
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

    /// Builds the part of the model that one rank of `group` computes: its part of each layer or, where the
    /// ranks are stages, its layers.
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
        let here = config.ranks_per_node();
        let device = OpenDevice::open(config.device, group.rank() % here, here)?;
        let stages = config.pipeline_parallel;
        let stage = Stage { index: group.rank(), count: stages };
        let ranks = group.size();
        // Stages exchange hidden states alone, and not as a group.
        let group: Arc<dyn Group> =
            if stages > 1 { Arc::new(Alone) } else { connected(group, &device.device)? };
        let needed = usize::try_from(source.weight_bytes()).unwrap_or(usize::MAX);
        // Ranks on the CPU share its memory.
        let parts = if device.device.is_cpu() { ranks / here } else { ranks };
        let stored = needed / parts;
        let (dtype, kind) = (hf_config.dtype(), config.weight_kind);
        let bf16_bits = device.bf16_bits_of(source);
        let weights_fit = WeightsFit { stored, dtype, kind, bf16_bits };
        weights_fit.check(device.memory()?.free, &device.name)?;
        let identity = ModelIdentity::of(source, config)?;
        let weights = source.weights(&device.device).with_progress(progress);
        let weights = weights.in_parallel(|count, work| pool::for_each_chunk(count, work));
        let weights = weights.rounded_to(config.weight_kind.map(WeightKind::ggml));
        let (alone, first) = (ranks == 1, stages == 1 && group.rank() == 0);
        let drafts = alone && config.draft_max > 0;
        let WithDraftHead { model, head: draft_head } = if drafts {
            models::load_with_draft_head(&hf_config, &weights)?
        } else if stages > 1 {
            WithDraftHead { model: models::load_stage(&hf_config, &weights, stage)?, head: None }
        } else {
            WithDraftHead { model: models::load_part(&hf_config, &weights, group)?, head: None }
        };
        let kv_dtype = hf_config.dtype().unwrap_or(DType::F16);
        let draft = draft_head.map(|(model, bytes)| LoadedDraft::of_head(model, bytes, kv_dtype));
        let head = Self::head(source, config, &hf_config, &weights, model.hidden_size())?;
        let width = model.picture_width();
        if stages > 1 && stage.is_first() && source.config.get("vision_config").is_some() {
            tracing::warn!("stages of layers compute the model: it sees no pictures");
        }
        let tower = tower::load(source, &weights, width, first)?.map(Box::new);
        let audio_encoder = tower::load_audio(source, &weights, width, alone)?.map(Box::new);
        tracing::info!(matrices = %weights.tally(), bytes = weights.tally().bytes(), "weights loaded");
        Ok(Self {
            model,
            device,
            weight_bytes: weights.tally().bytes()
                - draft.as_ref().map_or(0, |draft| draft.weight_bytes),
            kv_dtype,
            head,
            max_text_len: source.sentence_modules.as_ref().and_then(head::max_seq_length),
            leader: None,
            identity,
            files: Arc::new(Disk),
            tower,
            audio_encoder,
            draft,
        })
    }

    /// What becomes of hidden states where they are wanted.
    fn head(
        source: &ModelSource,
        config: &EngineConfig,
        hf_config: &HfConfig,
        weights: &Weights,
        hidden_size: usize,
    ) -> Result<PoolingHead, StartupError> {
        let top = models::top(hf_config).unwrap_or(Top::LanguageModel);
        let classifier = ClassifierSpec::of_decoder(&source.config, top);
        if config.pooling == Some(Pooling::Splade) {
            return Err(head::no_masked_words());
        }
        if let Some(head) = head::of_own_code(source, config.pooling) {
            return Ok(head);
        }
        match (classifier, &source.sentence_modules) {
            (Some(spec), _) => {
                classifier::read(&spec, source, weights, hidden_size, config.pooling)
            }
            (None, Some(modules)) if !head::scores_by_words(modules)? => {
                head::read(source, modules, config.pooling, hidden_size)
            }
            (None, _) => Ok(PoolingHead::new(config.pooling.unwrap_or(Pooling::Last), true)),
        }
    }

    /// Plans memory, allocates the KV cache and starts the engine thread.
    pub fn start(
        self,
        config: &EngineConfig,
        metrics: MetricsHandle,
    ) -> Result<Engine, StartupError> {
        let kv_format = self.kv_format(config)?;
        // Once every rank has answered, all weights are in memory.
        let others = self.leader.as_ref().map(|leader| leader.wait_for_all()).transpose()?;
        self.rehearse(config, kv_format)?;
        let own = self.rank_memory(config, kv_format)?;
        let ranks = [vec![own], others.unwrap_or_default()].concat();
        let plan = self.plan(config, &ranks)?;
        let keeps_state = ranks.iter().any(|rank| rank.state_bytes > 0);
        let scheduler = self.scheduler(config, &plan, keeps_state);
        let limits = self.limits(config, &plan);
        metrics.set_cache_config(BLOCK_SIZE, plan.num_blocks);
        let (handle, commands) = EngineHandle::channel(limits);
        let cache = CacheFacts {
            identity: self.identity.as_ref(),
            format: kv_format,
            shape: &self.model.kv_shape(),
            device: &self.device.device,
            device_name: &self.device.name,
        };
        let events = config.kv_events.as_ref().map(|config| kv_events::start(config, &metrics));
        let events = events.transpose()?;
        let files = self.files.clone();
        let tiers = tiers::open(config, &cache, files, &handle, events.as_ref(), &metrics)?;
        let speculation = Speculation::new(config.draft_max);
        let vocab_size = self.model.vocab_size();
        let Self { model, device, head, leader, tower, audio_encoder, draft, .. } = self;
        let draft = draft.map(|draft| draft.start(config, &plan, &device.device, vocab_size));
        let draft = draft.transpose()?;
        let sizes = CacheSizes {
            num_blocks: plan.num_blocks,
            kv_format,
            num_slots: plan.num_slots,
            num_snapshots: plan.num_snapshots,
        };
        let told = draft.as_ref().map_or(HeadInput::Nothing, |draft| draft.input().clone());
        let runner = Runner::new(model, device.device, sizes, leader.clone())?;
        let runner = runner.with_tower(tower).with_audio_encoder(audio_encoder).with_head(told);
        if let Some(leader) = leader {
            leader.watch(handle.waker()).map_err(StartupError::Thread)?;
        }
        let (shared, pace) = (handle.shared(), Pace::new(config.target_step_time));
        let core = EngineCore::new(commands, shared, scheduler, pace, runner, head, metrics)
            .with_speculation(speculation, draft)
            .with_events(events);
        let mut core = match tiers {
            Some(tiers) => core.with_tiers(tiers),
            None => core,
        };
        let bounds = DecodeBounds {
            tokens: most_rows(plan.max_num_seqs, config.draft_max),
            blocks: plan.max_model_len.div_ceil(BLOCK_SIZE),
        };
        // The thread that computes is the one that captures, and nobody else uses the device yet.
        let (ready, captured) = mpsc::sync_channel(1);
        let engine = Engine::spawn(handle, Some(plan), move || {
            let done = core.capture(bounds);
            let failed = done.is_err();
            // Startup waits for it, or has ended.
            let _ = ready.send(done);
            if !failed {
                core.run();
            }
        })?;
        match captured.recv() {
            Ok(done) => done.map_err(StartupError::Capture)?,
            Err(_) => return Err(StartupError::Thread(std::io::Error::other("it ended"))),
        }
        Ok(engine)
    }

    /// The format of the KV cache, which the model's heads and the device must be able to have.
    fn kv_format(&self, config: &EngineConfig) -> Result<KvFormat, PlanError> {
        let shape = self.model.kv_shape();
        let format = memory::kv_format(config.kv_cache_dtype, self.kv_dtype, &shape)?;
        if !format.runs_on(&self.device.device) {
            let (asked, device) = (config.kv_cache_dtype, self.device.name.clone());
            return Err(PlanError::CacheDevice { asked, device });
        }
        Ok(format)
    }

    /// Computes steps of the largest size on a GPU, so that the memory it takes is not given to the
    /// KV cache. Several ranks would have to compute it together, so they don't.
    fn rehearse(&self, config: &EngineConfig, kv_format: KvFormat) -> Result<(), StartupError> {
        let (model, device) = (self.model.as_ref(), &self.device.device);
        if device.is_cpu() || self.leader.is_some() {
            return Ok(());
        }
        let context = config.max_model_len.unwrap_or(usize::MAX);
        let largest = LargestSteps {
            tokens: config.max_num_batched_tokens,
            rows: most_rows(config.max_num_seqs, config.draft_max),
            context: context.min(model.max_position_embeddings()),
        };
        // No context is longer than what a cache in all of the memory would hold.
        let largest = match model.kv_shape().block_bytes(kv_format) {
            0 => largest,
            bytes => largest.within(self.device.memory()?.free.div_ceil(bytes)),
        };
        let told = self.draft.as_ref().map_or(HeadInput::Nothing, LoadedDraft::input);
        let done = Runner::rehearse(model, device, largest, kv_format, &told);
        done.map_err(StartupError::Rehearsal)?;
        let draft = self.draft.as_ref();
        draft.map_or(Ok(()), |draft| draft.rehearse(config, model, device, largest))
    }

    /// The memory of this rank, and what its part of the model takes of it.
    fn rank_memory(
        &self,
        config: &EngineConfig,
        kv_format: KvFormat,
    ) -> Result<RankMemory, StartupError> {
        let DeviceMemory { free, own } = match config.kv_cache_bytes {
            // Free memory doesn't count then, and not every system tells how much there is.
            Some(bytes) => DeviceMemory { free: bytes, own: None },
            None => self.device.memory()?,
        };
        let kv_shape = self.model.kv_shape();
        let draft = self.draft.as_ref().map(|draft| draft.facts(config)).transpose()?;
        Ok(RankMemory {
            free,
            own,
            block_bytes: kv_shape.block_bytes(kv_format)
                + draft.map_or(0, |draft| draft.block_bytes),
            state_bytes: kv_shape.state_bytes(),
        })
    }

    /// Divides the memory of all ranks, of which this one is the first.
    fn plan(
        &self,
        config: &EngineConfig,
        ranks: &[RankMemory],
    ) -> Result<MemoryPlan, StartupError> {
        let draft = self.draft.as_ref().map(|draft| draft.facts(config)).transpose()?;
        let facts = |rank: &RankMemory| {
            // Where the pool is in host memory too, both have their parts of it.
            let kept = config.kv_host_bytes.filter(|_| rank.own.is_none()).unwrap_or(0);
            let kept = usize::try_from(kept).unwrap_or(usize::MAX);
            MemoryFacts {
                block_bytes: rank.block_bytes,
                state_bytes: rank.state_bytes,
                weight_bytes: self.weight_bytes,
                free_bytes: rank.free.saturating_sub(kept),
                own_bytes: rank.own,
                model_context: self.model.max_position_embeddings(),
                draft,
            }
        };
        // The flag is for each process.
        let apart = config.kv_cache_bytes.is_some();
        let pools = ranks::pools(ranks, config.ranks_per_node(), apart);
        let pools: Vec<_> = pools.iter().map(facts).collect();
        Ok(MemoryPlan::of_ranks(config, facts(&ranks[0]), &pools)?)
    }

    fn scheduler(&self, config: &EngineConfig, plan: &MemoryPlan, keeps_state: bool) -> Scheduler {
        // Only steps that are captured as graphs are run ahead, and none of several ranks.
        let runs_ahead = CudaGraph::wanted(&self.device.device) && self.leader.is_none();
        let scheduler_config = SchedulerConfig {
            fixed_rope_length: self.model.fixed_rope_length(),
            keeps_state,
            lookahead: runs_ahead && !keeps_state,
            max_num_seqs: plan.max_num_seqs,
            num_slots: plan.num_slots,
            max_num_batched_tokens: config.max_num_batched_tokens,
            max_model_len: plan.max_model_len,
        };
        let resumes = !keeps_state || plan.num_snapshots > 0;
        let kv_cache = KvCacheManager::new(plan.num_blocks, config.prefix_cache && resumes);
        let kv_cache = kv_cache.with_snapshots(plan.num_snapshots);
        let told = config.kv_events.is_some();
        Scheduler::new(scheduler_config, if told { kv_cache.with_events() } else { kv_cache })
    }

    fn limits(&self, config: &EngineConfig, plan: &MemoryPlan) -> EngineLimits {
        EngineLimits {
            max_model_len: plan.max_model_len,
            max_text_len: self.max_text_len.unwrap_or(usize::MAX).clamp(1, plan.max_model_len),
            vocab_size: self.model.vocab_size(),
            max_batch_tokens: config.max_num_batched_tokens,
            max_num_seqs: plan.max_num_seqs,
            block_size: BLOCK_SIZE,
            num_blocks: plan.num_blocks,
            embedding_size: self.head.size(self.model.hidden_size()),
            hidden_size: self.model.hidden_size(),
            outputs: self.head.outputs,
            further: self.head.further_sizes(),
            pooling: self.head.pooling,
            normalizes: self.head.normalizes(),
            generates: self.model.gives_logits(),
            prefix_lm: self.model.is_prefix_lm(),
            sees: self.tower.is_some(),
            hears: self.audio_encoder.is_some(),
        }
    }
}

/// Most rows with logits of a step that decodes: one for each of the sequences, and their drafts.
fn most_rows(num_seqs: usize, draft_max: usize) -> usize {
    num_seqs.max(LARGEST_STEP.min(num_seqs.saturating_mul(1 + draft_max)))
}

/// Loads this rank's part of the model and computes what rank 0 asks for until it ends.
///
/// # Errors
///
/// Why the part could not be loaded, or what failed later; rank 0 is told as well.
pub fn follow(
    source: &ModelSource,
    config: &EngineConfig,
    follower: &Arc<Follower>,
) -> Result<(), StartupError> {
    let load = || {
        ranks::refuse_encoder(source, config)?;
        let loaded = LoadedModel::load_part(source, config, Arc::new(|_, _| {}), follower.clone())?;
        source.release_pages();
        let memory = loaded.rank_memory(config, loaded.kv_format(config)?)?;
        Ok((loaded, memory))
    };
    let (LoadedModel { model, device, .. }, memory) = match load() {
        Ok(loaded) => loaded,
        Err(error) => {
            let error: StartupError = error;
            // Rank 0 may have ended; then nobody is left to tell.
            let _ = follower.fail(&error.to_string());
            return Err(error);
        }
    };
    Ok(follower.follow(model, &device.device, memory)?)
}
