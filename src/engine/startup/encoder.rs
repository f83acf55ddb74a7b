//! From an encoder's folder to a running engine that only embeds.

use std::num::NonZeroUsize;

use candle_core::Device;

use super::engine::Engine;
use super::error::StartupError;
use super::{classifier, head, late_interaction, token_heads};
use crate::config::{DeviceChoice, EngineConfig, KvCacheDtype, Pooling, WeightKind};
use crate::engine::encoder::EncoderCore;
use crate::engine::handle::EngineHandle;
use crate::engine::limits::EngineLimits;
use crate::engine::memory::PlanError;
use crate::kernels::pool;
use crate::kv_cache::BLOCK_SIZE;
use crate::metrics::MetricsHandle;
use crate::models::ModelError;
use crate::models::adapter::AdapterLayout;
use crate::models::bidirectional::{BidirectionalSpec, is_bidirectional};
use crate::models::classifier::ClassifierSpec;
use crate::models::encoder::{
    Encoder, EncoderSpec, LexicalEncoder, T5Encoder, T5Spec, TextEncoder, is_encoder, is_t5,
};
use crate::pooling::{Outputs, PoolingHead};
use crate::runner::EncoderRunner;
use crate::weights::Weights;
use crate::weights::progress::ProgressSink;
use crate::weights::source::ModelSource;

/// An encoder that is ready to run, and what startup knows of it.
pub struct LoadedEncoder {
    model: Box<dyn TextEncoder>,
    head: PoolingHead,
    /// Most tokens of a text, where the model's files name it.
    max_seq_length: Option<usize>,
}

impl LoadedEncoder {
    /// Builds the encoder that `source` describes and reads its weights.
    pub(super) fn load(
        source: &ModelSource,
        config: &EngineConfig,
        progress: ProgressSink,
    ) -> Result<Self, StartupError> {
        check_settings(config)?;
        let spec = Spec::of(source)?;
        if let Some(threads) = config.threads.and_then(NonZeroUsize::new) {
            pool::start(threads)?;
        }
        let weights = source.weights(&Device::Cpu).with_progress(progress);
        let weights = weights.in_parallel(|count, work| pool::for_each_chunk(count, work));
        // With bf16 weights activations would be rounded too: vectors are those of the library
        // only where nothing is, and encoders are small.
        let kind = config.weight_kind.unwrap_or(WeightKind::F32);
        let weights = weights.rounded_to(Some(kind.ggml()));
        let size = spec.hidden_size();
        let logarithms = logarithms(source, config)?;
        let own = head::of_own_code(source, config.pooling);
        let mut head = match (spec.classifier(), own, &source.sentence_modules) {
            _ if logarithms.is_some() => PoolingHead::lexical(),
            (Some(spec), ..) => classifier::read(spec, source, &weights, size, config.pooling)?,
            (None, Some(head), _) => head,
            _ if late_interaction::is_late(source) => late_interaction::read(source, size)?,
            (None, None, Some(modules)) => head::read(source, modules, config.pooling, size)?,
            // As BGE-M3's authors do.
            (None, None, None) if source.token_heads.is_some() => {
                PoolingHead::new(config.pooling.unwrap_or(Pooling::Cls), true)
            }
            // As sentence-transformers does with a folder that isn't its own.
            (None, None, None) => PoolingHead::new(config.pooling.unwrap_or(Pooling::Mean), false),
        };
        if head.outputs == Outputs::Embedding {
            head.further = token_heads::read(source, size)?;
        }
        let model = match logarithms {
            Some(count) => spec.load_lexical(&weights, count)?,
            None => spec.load(&weights)?,
        };
        tracing::info!(matrices = %weights.tally(), bytes = weights.tally().bytes(), "weights loaded");
        Ok(Self { model, head, max_seq_length: max_seq_length(source) })
    }

    /// The linear layers that LoRA adapters may change, if the encoder takes any.
    pub(super) fn adapter_layout(&self) -> Option<AdapterLayout> {
        self.model.adapter_layout()
    }

    /// Starts the engine thread.
    pub(super) fn start(
        self,
        config: &EngineConfig,
        metrics: MetricsHandle,
    ) -> Result<Engine, StartupError> {
        let Self { model, head, max_seq_length } = self;
        let context = max_seq_length.unwrap_or(usize::MAX).min(model.max_tokens());
        let max_model_len = match config.max_model_len {
            Some(asked) if asked > context => {
                return Err(PlanError::BeyondModel { asked, context }.into());
            }
            asked => asked.unwrap_or(context).max(1),
        };
        let limits = EngineLimits {
            max_model_len,
            max_text_len: max_model_len,
            vocab_size: model.vocab_size(),
            max_batch_tokens: config.max_num_batched_tokens,
            max_num_seqs: config.max_num_seqs.max(1),
            block_size: BLOCK_SIZE,
            num_blocks: 0,
            embedding_size: head.size(model.hidden_size()),
            hidden_size: model.hidden_size(),
            outputs: head.outputs,
            further: head.further_sizes(),
            pooling: head.pooling,
            normalizes: head.normalizes(),
            generates: false,
            prefix_lm: false,
            sees: false,
            hears: false,
        };
        let (handle, commands) = EngineHandle::channel(limits);
        let most_tokens = config.max_num_batched_tokens;
        let runner = EncoderRunner::new(model, Device::Cpu);
        let shared = handle.shared();
        let core = EncoderCore::new(commands, shared, runner, head, most_tokens, metrics);
        Ok(Engine::spawn(handle, None, move || core.run())?)
    }
}

/// How many logarithms of its logits a head for masked words takes, where texts become weights of the
/// vocabulary's tokens.
fn logarithms(source: &ModelSource, config: &EngineConfig) -> Result<Option<usize>, StartupError> {
    let modules = source.sentence_modules.as_ref();
    let named = modules.map(head::splade_logarithms).transpose().map(Option::flatten);
    match config.pooling {
        None => named,
        Some(Pooling::Splade) => named.map(|named| named.or(Some(1))),
        Some(_) => Ok(None),
    }
}

/// Whether a model reads whole texts and continues none.
pub(super) fn reads_whole_texts(source: &ModelSource) -> bool {
    is_encoder(&source.config) || is_bidirectional(&source.config)
}

/// The shape of an encoder of any kind.
enum Spec {
    Encoder(EncoderSpec),
    T5(T5Spec),
    Bidirectional(Box<BidirectionalSpec>),
}

impl Spec {
    fn of(source: &ModelSource) -> Result<Self, ModelError> {
        let config = &source.config;
        if is_bidirectional(config) {
            return BidirectionalSpec::from_config(config)
                .map(|spec| Self::Bidirectional(Box::new(spec)));
        }
        if is_t5(config) {
            return T5Spec::from_config(config).map(Self::T5);
        }
        EncoderSpec::from_config(config).map(Self::Encoder)
    }

    fn hidden_size(&self) -> usize {
        match self {
            Self::Encoder(spec) => spec.hidden_size(),
            Self::T5(spec) => spec.hidden_size(),
            Self::Bidirectional(spec) => spec.hidden_size(),
        }
    }

    fn classifier(&self) -> Option<&ClassifierSpec> {
        match self {
            Self::Encoder(spec) => spec.classifier(),
            Self::T5(_) => None,
            Self::Bidirectional(spec) => spec.classifier(),
        }
    }

    /// The encoder below its head for masked words.
    fn load_lexical(
        &self,
        weights: &Weights,
        logarithms: usize,
    ) -> Result<Box<dyn TextEncoder>, StartupError> {
        match self {
            Self::Encoder(spec) if spec.has_masked_words() => {
                Ok(Box::new(LexicalEncoder::load(spec, weights, logarithms)?))
            }
            Self::Encoder(_) | Self::T5(_) | Self::Bidirectional(_) => Err(head::no_masked_words()),
        }
    }

    fn load(&self, weights: &Weights) -> Result<Box<dyn TextEncoder>, ModelError> {
        match self {
            Self::Encoder(spec) => Ok(Box::new(Encoder::load(spec, weights)?)),
            Self::T5(spec) => Ok(Box::new(T5Encoder::load(spec, weights)?)),
            Self::Bidirectional(spec) => spec.load(weights),
        }
    }
}

/// Most tokens of a text: what sentence-transformers' file says, else the tokenizer's own.
fn max_seq_length(source: &ModelSource) -> Option<usize> {
    let tokenizer = || {
        let length = source.tokenizer_config.as_ref()?.get("model_max_length")?;
        // Where it is unknown, the file has a number like 1e30.
        length.as_u64().and_then(|length| usize::try_from(length).ok())
    };
    // Where texts are compared token by token, queries and documents have bounds of their own.
    let late = late_interaction::is_late(source);
    let named = source.sentence_modules.as_ref().filter(|_| !late);
    named.and_then(head::max_seq_length).or_else(|| tokenizer().filter(|_| !late))
}

/// Refuses settings that have no effect on an encoder.
fn check_settings(config: &EngineConfig) -> Result<(), StartupError> {
    let refuse =
        |setting, reason: &str| Err(StartupError::Setting { setting, reason: reason.to_owned() });
    if config.kv_cache_bytes.is_some() {
        return refuse("--kv-cache-memory", "it has no KV cache");
    }
    if config.kv_host_bytes.is_some() {
        return refuse("--kv-host-memory", "it has no KV cache");
    }
    if config.kv_disk.is_some() {
        return refuse("--kv-disk", "it has no KV cache");
    }
    if config.kv_events.is_some() {
        return refuse("--kv-events-config", "it has no KV cache");
    }
    if config.state_cache_bytes.is_some() {
        return refuse("--state-cache-memory", "it has no recurrent layers");
    }
    if !matches!(config.device, DeviceChoice::Auto | DeviceChoice::Cpu) {
        return refuse("--device", "it runs on the CPU");
    }
    if config.kv_cache_dtype != KvCacheDtype::Auto {
        return refuse("--kv-cache-dtype", "it has no KV cache");
    }
    Ok(())
}
