//! How fast a model can be, before all of it is loaded: steps of some of its layers, timed.

use std::num::NonZeroUsize;

use candle_core::DType;

use super::device::OpenDevice;
use super::error::StartupError;
use super::forecast::{Forecast, Part, Work};
use crate::config::{EngineConfig, WeightKind};
use crate::engine::memory::{self, MemoryPlan};
use crate::kernels::ceiling::DeviceCeiling;
use crate::kernels::pool;
use crate::kv_cache::BLOCK_SIZE;
use crate::models::config::HfConfig;
use crate::models::{self, ModelError, Stage};
use crate::runner::{Runner, StepSeconds};
use crate::weights::source::ModelSource;

/// Tokens of the prompt whose speed is told.
pub const PROMPT: usize = 512;
/// Bytes that a token of the timed layers is to read: more than caches hold.
const READ_BYTES: usize = 512 << 20;
/// Bytes that the timed layers may take, of which a token reads a part where there are experts: no more
/// than half of the memory, either.
const STAGE_BYTES: usize = 2 << 30;
/// Stages of which one is neither the first, which has embedding and head, nor the last, whose last layer
/// computes wanted rows alone.
const FEWEST_STAGES: usize = 3;

/// Tokens in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Of one stream, its context short.
    pub decode: f64,
    /// Of one stream, its context full.
    pub decode_full: f64,
    /// Of a prompt of [`PROMPT`] tokens, or of as many as the model can have.
    pub prefill: f64,
    /// Bytes in a second that are read of weights.
    pub read_bytes: f64,
    /// Whether this is what the device can do at most, and not what the model was seen to do.
    pub at_most: bool,
}

impl Speed {
    /// Times a model on the CPU, which loads up to 2 GiB of it, or asks a GPU what it can do at most. `None` for
    /// encoders, which have no KV cache.
    ///
    /// # Errors
    /// The layers can't be loaded, or can't be loaded apart from others; no memory for them.
    pub fn measure(
        source: &ModelSource,
        forecast: &Forecast,
        plan: Option<&MemoryPlan>,
        config: &EngineConfig,
        device: &OpenDevice,
    ) -> Result<Option<Self>, StartupError> {
        let Some(facts) = forecast.facts else { return Ok(None) };
        let length = plan.map_or(facts.model_context, |plan| plan.max_model_len);
        let context_bytes = facts.block_bytes / BLOCK_SIZE * length;
        let work = forecast.work_of_token();
        if device.device.is_cpu() {
            Self::timed(source, forecast, &work, config, context_bytes).map(Some)
        } else {
            Ok(Some(Self::at_most(&work, DeviceCeiling::measure(&device.device)?, context_bytes)))
        }
    }

    /// What the arithmetic and the memory of a GPU allow.
    fn at_most(work: &[Work], ceiling: DeviceCeiling, context_bytes: usize) -> Self {
        let DeviceCeiling { copied_bytes, bf16_operations } = ceiling;
        let bytes: usize = work.iter().map(|one| one.share.bytes).sum();
        // The output head multiplies a prompt's last token alone.
        let layers = work.iter().filter(|one| one.part != Part::Head);
        let elements: usize = layers.map(|one| one.share.elements).sum();
        Self {
            decode: copied_bytes / float(bytes),
            decode_full: copied_bytes / float(bytes + context_bytes),
            prefill: bf16_operations / float(2 * elements),
            read_bytes: copied_bytes,
            at_most: true,
        }
    }

    /// What the model was seen to do on the CPU.
    fn timed(
        source: &ModelSource,
        forecast: &Forecast,
        work: &[Work],
        config: &EngineConfig,
        context_bytes: usize,
    ) -> Result<Self, StartupError> {
        let of = |head: bool| -> usize {
            let some = work.iter().filter(|one| (one.part == Part::Head) == head);
            some.map(|one| one.share.bytes).sum()
        };
        let (head, layers) = (of(true), of(false));
        let all = forecast.layer_bytes();
        let most = STAGE_BYTES.min(forecast.free_bytes / 2);
        let timed = Timed::of(source, config, (head + layers, all), most)?;
        let StepSeconds { prompt, token } = timed.seconds;
        let speed = |prompt: f64, token: f64, read_bytes: f64| Self {
            decode: 1.0 / token,
            decode_full: 1.0 / (token + float(context_bytes) / read_bytes),
            prefill: float(timed.tokens) / prompt,
            read_bytes,
            at_most: false,
        };
        let Some(bytes) = timed.bytes else {
            return Ok(speed(prompt, token, float(head + layers) / token));
        };
        // The other layers take as long for as many bytes, and so does the output head of a token.
        let factor = float(all) / float(bytes);
        let read_bytes = float(layers) / (token * factor);
        let head = float(head) / read_bytes;
        Ok(speed(prompt * factor + head, token * factor + head, read_bytes))
    }
}

/// Steps of a model, or of a part of it.
struct Timed {
    seconds: StepSeconds,
    /// Tokens of the prompt.
    tokens: usize,
    /// Bytes of the layers that took so long; `None`: it was all of the model.
    bytes: Option<usize>,
}

impl Timed {
    /// Loads as much of a model as tells how fast all of it is, about `most` bytes at most. A token reads
    /// `read` bytes of it, and its layers have `all`.
    fn of(
        source: &ModelSource,
        config: &EngineConfig,
        (read, all): (usize, usize),
        most: usize,
    ) -> Result<Self, StartupError> {
        if let Some(threads) = config.threads.and_then(NonZeroUsize::new) {
            pool::start(threads)?;
        }
        let whole = read.max(all);
        if read <= 2 * READ_BYTES && whole <= most {
            return Self::of_stage(source, config, Stage::WHOLE);
        }
        let count = read.div_ceil(READ_BYTES).max(all.div_ceil(most.max(1))).max(FEWEST_STAGES);
        match Self::of_stage(source, config, Stage { index: 1, count }) {
            // What can't be apart is loaded together, unless that takes too long.
            Err(StartupError::Model(ModelError::Split { .. })) if whole <= 2 * most => {
                Self::of_stage(source, config, Stage::WHOLE)
            }
            timed => timed,
        }
    }

    fn of_stage(
        source: &ModelSource,
        config: &EngineConfig,
        stage: Stage,
    ) -> Result<Self, StartupError> {
        let hf_config = HfConfig::from_value(&source.config)?;
        let device = candle_core::Device::Cpu;
        let weights = source.weights(&device);
        let weights = weights.in_parallel(|count, work| pool::for_each_chunk(count, work));
        let weights = weights.rounded_to(config.weight_kind.map(WeightKind::ggml));
        let model = models::load_stage(&hf_config, &weights, stage)?;
        source.release_pages();
        let dtype = hf_config.dtype().unwrap_or(DType::F16);
        let format = memory::kv_format(config.kv_cache_dtype, dtype, &model.kv_shape())?;
        let tokens = PROMPT.min(model.max_position_embeddings());
        let seconds = Runner::time_steps(model.as_ref(), &device, tokens, format)?;
        let bytes = (stage.count > 1).then(|| weights.tally().bytes());
        Ok(Self { seconds, tokens, bytes })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
fn float(amount: usize) -> f64 {
    amount as f64
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::weights::hub::HubOptions;
    use crate::weights::model_ref::ModelRef;

    fn source(name: &str) -> ModelSource {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/parity");
        let model = ModelRef::Folder(Path::new(fixtures).join(name));
        ModelSource::open(&model, &HubOptions::offline(Path::new("none"))).unwrap()
    }

    fn timed(name: &str, most: usize) -> Result<Timed, StartupError> {
        // A model of which a token reads so much is a large one.
        Timed::of(&source(name), &EngineConfig::default(), (3 * READ_BYTES, most), most)
    }

    #[test]
    fn a_large_model_is_timed_by_some_of_its_layers() {
        let source = source("qwen3_next");
        let weights = source.weights(&candle_core::Device::Cpu);
        let config = HfConfig::from_value(&source.config).unwrap();
        models::load_stage(&config, &weights, Stage::WHOLE).unwrap();
        let (all, one) = (weights.tally().bytes(), timed("qwen3_next", STAGE_BYTES).unwrap().bytes);
        let one = one.unwrap();
        assert!(one > all / 6 && one < all / 2, "{one} of {all} bytes, of one of three layers");
    }

    #[test]
    fn layers_that_cannot_be_apart_are_timed_together_or_the_reason_is_told() {
        assert_eq!(timed("gemma3n", 2 * READ_BYTES).unwrap().bytes, None);
        let error = timed("gemma3n", READ_BYTES).map(|timed| timed.seconds).unwrap_err();
        assert!(error.to_string().contains("embeddings of their own"), "{error}");
    }

    #[test]
    fn a_gpu_is_told_by_what_it_can_do_at_most() {
        let share = |elements, bytes| super::super::forecast::Share { elements, bytes };
        let work = [
            Work { part: Part::Layers, share: share(50, 100) },
            Work { part: Part::Head, share: share(50, 100) },
        ];
        let ceiling = DeviceCeiling { copied_bytes: 1000.0, bf16_operations: 1000.0 };
        let speed = Speed::at_most(&work, ceiling, 200);
        let expected = Speed {
            decode: 5.0,
            decode_full: 2.5,
            prefill: 10.0,
            read_bytes: 1000.0,
            at_most: true,
        };
        assert_eq!(speed, expected);
    }
}
