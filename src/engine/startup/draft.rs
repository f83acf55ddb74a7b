//! A draft model: from its files to what drafts beside the model.

use candle_core::{DType, Device};

use super::device::OpenDevice;
use super::error::StartupError;
use crate::config::{EngineConfig, WeightKind};
use crate::engine::core::DraftModel;
use crate::engine::memory::{self, DraftFacts, MemoryPlan, WeightsFit};
use crate::kernels::pool;
use crate::models::{self, CausalLm, DrafterKind, ModelError};
use crate::runner::{DraftRunner, HeadInput, KvFormat, LargestSteps};
use crate::speculation::LARGEST_STEP;
use crate::weights::progress::ProgressSink;
use crate::weights::source::ModelSource;

/// A draft model with its weights in memory.
pub struct LoadedDraft {
    /// The model.
    pub model: Box<dyn CausalLm>,
    /// Bytes that its matrices take.
    pub weight_bytes: usize,
    /// The element type of its KV cache, unless the configuration names one.
    pub kv_dtype: DType,
}

/// Whether what `source` describes is a drafter that goes on from what layers of the model gave, and so has
/// the model's tokens.
///
/// # Errors
///
/// Something that drafts in a way that is not supported.
pub fn goes_on_from_layers(source: &ModelSource) -> Result<bool, StartupError> {
    let kind = models::drafter_kind(&source.config).map_err(|error| StartupError::Draft {
        name: source.name.clone(),
        reason: error.to_string(),
    })?;
    Ok(kind != DrafterKind::Model)
}

impl LoadedDraft {
    /// A head of the model's own checkpoint, whose matrices take so many bytes.
    pub(super) fn of_head(model: Box<dyn CausalLm>, weight_bytes: usize, kv_dtype: DType) -> Self {
        tracing::info!(bytes = weight_bytes, "the checkpoint has a head that drafts");
        Self { model, weight_bytes, kv_dtype }
    }

    /// Builds what `source` describes, on the `device` of the `drafted` model whose tokens it is to
    /// draft, and reads its weights; `progress` is told of every tensor.
    pub(super) fn load(
        source: &ModelSource,
        config: &EngineConfig,
        drafted: &dyn CausalLm,
        device: &OpenDevice,
        progress: ProgressSink,
    ) -> Result<Self, StartupError> {
        let refused = |reason: String| StartupError::Draft { name: source.name.clone(), reason };
        let unusable = |error: ModelError| refused(error.to_string());
        let refuse = |reason: &str| Err(refused(reason.to_owned()));
        if config.draft_max == 0 {
            return refuse("--draft-max 0 turns drafts off");
        }
        let kind = models::drafter_kind(&source.config).map_err(unusable)?;
        let layers = models::drafter_config(kind, &source.config).map_err(unusable)?;
        let dtype = layers.dtype();
        let stored = usize::try_from(source.weight_bytes()).unwrap_or(usize::MAX);
        let (kind, bf16_bits) = (config.weight_kind, device.bf16_bits_of(source));
        let fit = WeightsFit { stored, dtype, kind, bf16_bits };
        fit.check(device.memory()?.free, &device.name)?;
        let weights = source.weights(&device.device).with_progress(progress);
        let weights = weights.in_parallel(|count, work| pool::for_each_chunk(count, work));
        let weights = weights.rounded_to(config.weight_kind.map(WeightKind::ggml));
        let model = models::load_drafter(&source.config, &weights, drafted).map_err(unusable)?;
        if !model.kv_shape().states.is_empty() {
            return refuse("its recurrent layers can't take back wrong drafts");
        }
        if !model.gives_logits() {
            return refuse("it has no output head");
        }
        let weight_bytes = weights.tally().bytes();
        tracing::info!(matrices = %weights.tally(), bytes = weight_bytes, "draft model loaded");
        Ok(Self { model, weight_bytes, kv_dtype: dtype.unwrap_or(DType::F16) })
    }

    /// The format of its KV cache.
    pub(super) fn kv_format(&self, config: &EngineConfig) -> Result<KvFormat, StartupError> {
        Ok(memory::kv_format(config.kv_cache_dtype, self.kv_dtype, &self.model.kv_shape())?)
    }

    /// What it needs of the model.
    pub(super) fn input(&self) -> HeadInput {
        HeadInput::of(&*self.model)
    }

    /// Computes its largest step on a GPU beside `model`, so that the memory that takes is not given to the
    /// KV cache.
    pub(super) fn rehearse(
        &self,
        config: &EngineConfig,
        model: &dyn CausalLm,
        device: &Device,
        largest: LargestSteps,
    ) -> Result<(), StartupError> {
        let tokens = DraftModel::most_tokens(&self.input(), config.max_num_batched_tokens);
        let rows = largest.rows.min(LARGEST_STEP).min(tokens);
        let largest = LargestSteps { tokens, rows, ..largest };
        let (drafter, kv_format) = (&*self.model, self.kv_format(config)?);
        let done = DraftRunner::rehearse(drafter, model.hidden_size(), device, largest, kv_format);
        done.map_err(StartupError::Rehearsal)
    }

    /// What the memory plan has to know.
    pub(super) fn facts(&self, config: &EngineConfig) -> Result<DraftFacts, StartupError> {
        let block_bytes = self.model.kv_shape().block_bytes(self.kv_format(config)?);
        Ok(DraftFacts { weight_bytes: self.weight_bytes, block_bytes })
    }

    /// Allocates its KV cache beside that of a model that knows `vocab_size` tokens.
    pub(super) fn start(
        self,
        config: &EngineConfig,
        plan: &MemoryPlan,
        device: &Device,
        vocab_size: usize,
    ) -> Result<DraftModel, StartupError> {
        let format = self.kv_format(config)?;
        let runner = DraftRunner::new(self.model, device.clone(), plan.num_blocks, format)?;
        Ok(DraftModel::new(runner, vocab_size, plan.num_blocks))
    }
}
