//! What a model will take and how fast it can be, from the headers of its files: nothing is loaded.

use std::collections::BTreeMap;

use candle_core::DType;
use candle_core::quantized::GgmlDType;

use super::device::{DeviceMemory, OpenDevice};
use super::encoder::reads_whole_texts;
use super::error::StartupError;
use crate::blocks::Kind;
use crate::config::{EngineConfig, WeightKind};
use crate::engine::memory::{self, MemoryFacts, MemoryPlan, PlanError};
use crate::models::ModelError;
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;
use crate::models::{self, at_least_eight_bits};
use crate::weights::gguf::requantize::fitting;
use crate::weights::source::ModelSource;
use crate::weights::tensors::Outline;

/// Bytes of a process beside what its model takes: program, tokenizer, threads, connections.
const PROCESS_BYTES: usize = 64 << 20;
/// How many vectors as wide as the hidden states a token of a step has at the same time.
const HIDDEN_VECTORS: usize = 8;

/// What a part of a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The embedding of tokens.
    Embedding,
    /// The output head, where it isn't the embedding.
    Head,
    /// Attention, recurrences, and feed-forward parts without experts.
    Layers,
    /// Routed experts.
    Experts,
    /// What prepares pictures.
    Tower,
    /// Heads that draft tokens.
    Drafts,
    /// Norms, biases and other small tensors.
    Small,
}

impl Part {
    /// The name that users read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Head => "output head",
            Self::Layers => "layers",
            Self::Experts => "experts",
            Self::Tower => "pictures",
            Self::Drafts => "draft heads",
            Self::Small => "norms and biases",
        }
    }
}

/// Tensors of one part that are kept as one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of elements.
    pub elements: usize,
    /// Bytes in memory.
    pub bytes: usize,
}

/// What a model will take.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// Weights in memory, by part and kind.
    pub weights: BTreeMap<(Part, String), Share>,
    /// What the memory plan starts from; `None` for encoders, which have no KV cache.
    pub facts: Option<MemoryFacts>,
    /// The type of the KV cache.
    pub kv_dtype: String,
    /// Bytes of a step's intermediate results at most.
    pub scratch_bytes: usize,
    /// The longest context that the model was made for.
    pub context: usize,
    /// Of the routed experts, how many compute a token, and how many there are.
    pub experts: Option<(usize, usize)>,
    /// Where it is to run.
    pub device: String,
    /// Bytes that are free there now.
    pub free_bytes: usize,
    /// Bytes of all memory, where the device has memory of its own.
    pub own_bytes: Option<usize>,
}

impl Forecast {
    /// Reads what `source` says of itself, to be run as `config` says.
    ///
    /// # Errors
    /// An architecture that isn't supported, a cache format that can't hold the heads, a device that
    /// isn't there.
    pub fn new(
        source: &ModelSource,
        config: &EngineConfig,
        device: &OpenDevice,
    ) -> Result<Self, StartupError> {
        let DeviceMemory { free, own } = device.memory()?;
        let hf_config = HfConfig::from_value(&source.config);
        let decoder = (!reads_whole_texts(source))
            .then(|| Ok::<_, StartupError>(models::spec_on(&hf_config?, &device.device)?))
            .transpose()?;
        let outlines = source.outlines().map_err(ModelError::from)?;
        let weights = weights(&outlines, config, decoder.as_ref(), device.bf16_bits());
        let mut forecast = Self {
            weights,
            facts: None,
            kv_dtype: String::new(),
            scratch_bytes: 0,
            context: 0,
            experts: None,
            device: device.name.clone(),
            free_bytes: free,
            own_bytes: own,
        };
        let Some(spec) = decoder else {
            let context = source.config.get("max_position_embeddings");
            let context = context.and_then(|context| usize::try_from(context.as_u64()?).ok());
            // What the first encoders had.
            forecast.context = context.unwrap_or(512);
            return Ok(forecast);
        };
        let dtype = HfConfig::from_value(&source.config)?.dtype().unwrap_or(DType::F16);
        let shape = spec.kv_shape();
        let format = memory::kv_format(config.kv_cache_dtype, dtype, &shape)?;
        forecast.kv_dtype = format!("{format:?}").to_lowercase();
        forecast.context = spec.max_position_embeddings;
        forecast.scratch_bytes = scratch_bytes(&spec, config);
        forecast.experts =
            spec.moe.as_ref().map(|moe| (moe.routing.experts_per_token, moe.num_experts));
        forecast.facts = Some(MemoryFacts {
            block_bytes: shape.block_bytes(format),
            state_bytes: shape.state_bytes(),
            weight_bytes: forecast.weight_bytes(),
            free_bytes: free.saturating_sub(forecast.weight_bytes()),
            own_bytes: own,
            model_context: spec.max_position_embeddings,
            draft: None,
        });
        Ok(forecast)
    }

    /// Bytes of all weights in memory.
    pub fn weight_bytes(&self) -> usize {
        self.weights.values().map(|share| share.bytes).sum()
    }

    /// Number of all parameters.
    pub fn parameters(&self) -> usize {
        self.weights.values().map(|share| share.elements).sum()
    }

    /// Bytes of the weights if dense matrices were rounded to `kind`; `None` if there are none.
    pub fn rounded_bytes(&self, kind: WeightKind) -> Option<usize> {
        let dense = ["f32", "f16", "bf16"];
        let is_dense = |part: Part, kind: &str| part != Part::Small && dense.contains(&kind);
        self.weights.keys().any(|(part, kind)| is_dense(*part, kind)).then_some(())?;
        let bytes = self.weights.iter().map(|((part, stored), share)| {
            if is_dense(*part, stored) && *part != Part::Tower {
                let kind = match part {
                    Part::Embedding | Part::Head => at_least_eight_bits(kind.ggml()),
                    _ => kind.ggml(),
                };
                share.elements / kind.block_size() * kind.type_size()
            } else {
                share.bytes
            }
        });
        Some(bytes.sum())
    }

    /// The kind that most bytes of the weights have.
    pub fn main_kind(&self) -> &str {
        let mut bytes: BTreeMap<&str, usize> = BTreeMap::new();
        for ((_, kind), share) in &self.weights {
            *bytes.entry(kind).or_default() += share.bytes;
        }
        bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map_or("", |(kind, _)| kind)
    }

    /// How memory would be shared out, as at a start.
    ///
    /// # Errors
    /// It doesn't suffice; the message says what would help.
    pub fn plan(&self, config: &EngineConfig) -> Result<Option<MemoryPlan>, PlanError> {
        let plan = |facts: MemoryFacts| {
            // What was asked for is there, as far as this plan can tell.
            let free = config.kv_cache_bytes.unwrap_or(facts.free_bytes);
            MemoryPlan::new(config, MemoryFacts { free_bytes: free, ..facts })
        };
        self.facts.map(plan).transpose()
    }

    /// Bytes of all of a process that runs so, as far as it can be known before.
    pub fn process_bytes(&self, plan: Option<&MemoryPlan>) -> usize {
        let cache =
            plan.map_or(0, |plan| plan.kv_bytes() + plan.state_bytes() + plan.snapshot_bytes());
        self.weight_bytes() + cache + self.scratch_bytes + PROCESS_BYTES
    }

    /// Bytes of the layers' matrices, with those of all experts.
    pub fn layer_bytes(&self) -> usize {
        let layers = self
            .weights
            .iter()
            .filter(|((part, _), _)| matches!(part, Part::Layers | Part::Experts));
        layers.map(|(_, share)| share.bytes).sum()
    }

    /// The matrices that a token is multiplied with, by part and kind: of experts those that it goes to.
    pub fn work_of_token(&self) -> Vec<Work> {
        let tied = !self.weights.keys().any(|(part, _)| *part == Part::Head);
        let work = self.weights.iter().filter_map(|((part, _), share)| {
            let (of, all) = match (part, self.experts) {
                (Part::Experts, Some((some, all))) => (some.min(all), all.max(1)),
                // Of an embedding one row is read; as an output head all of it.
                (Part::Embedding, _) if !tied => return None,
                (Part::Tower | Part::Drafts | Part::Small, _) => return None,
                _ => (1, 1),
            };
            let part = if *part == Part::Embedding { Part::Head } else { *part };
            let share =
                Share { elements: share.elements / all * of, bytes: share.bytes / all * of };
            Some(Work { part, share })
        });
        work.collect()
    }
}

/// Matrices of one part and kind that a token is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// What they are for; an embedding that is the output head counts as that.
    pub part: Part,
    /// How large they are together.
    pub share: Share,
}

/// Bytes that models may take together, where nobody says how many.
///
/// # Errors
/// The system doesn't tell how much memory there is.
pub fn memory_for_models(
    config: &EngineConfig,
    device: &OpenDevice,
) -> Result<usize, StartupError> {
    let DeviceMemory { free, own } = device.memory()?;
    Ok(match own {
        None => free / 10 * 8,
        Some(all) => (all / 100 * usize::from(config.gpu_memory_percent)).min(free),
    })
}

/// The largest part of a step's intermediate results.
fn scratch_bytes(spec: &DecoderSpec, config: &EngineConfig) -> usize {
    let hidden = spec.mlp.hidden_size;
    let widest = spec.mlp.intermediate_size.max(hidden);
    let of_tokens = config.max_num_batched_tokens * (HIDDEN_VECTORS * hidden + 3 * widest);
    let of_logits = config.max_num_seqs * spec.vocab_size;
    4 * (of_tokens + of_logits)
}

/// The weights by part and by the kind that they have once they are loaded.
fn weights(
    outlines: &[Outline],
    config: &EngineConfig,
    spec: Option<&DecoderSpec>,
    bf16_bits: usize,
) -> BTreeMap<(Part, String), Share> {
    let mut all: BTreeMap<(Part, String), Share> = BTreeMap::new();
    let has_embedding = outlines.iter().any(|one| part_of(&one.name, spec) == Part::Embedding);
    let tied = spec.is_some_and(|spec| spec.tied_embeddings) && has_embedding;
    for tensor in outlines {
        let part = part_of(&tensor.name, spec);
        if tied && part == Part::Head {
            continue;
        }
        let is_matrix = tensor.dims.iter().filter(|dim| **dim > 1).count() > 1;
        let part = if is_matrix { part } else { Part::Small };
        let columns = tensor.dims.last().copied().unwrap_or(1).max(1);
        let target = rounded(tensor, part, config).map(|kind| fitting(kind, columns));
        let kind = target.map_or(tensor.kind, Kind::from);
        let name = format!("{kind:?}");
        let name = name.trim_start_matches("Ggml(").trim_start_matches("Coded(");
        let name = name.trim_end_matches(')').to_lowercase();
        let share = all.entry((part, name)).or_default();
        let elements: usize = tensor.dims.iter().product();
        share.elements += elements;
        let bytes = match target {
            Some(kind) => elements / columns * (columns / kind.block_size()) * kind.type_size(),
            None => tensor.bytes,
        };
        let compressed = is_matrix && kind == GgmlDType::BF16 && bf16_bits < 16;
        share.bytes += if compressed { bytes / 16 * bf16_bits } else { bytes };
    }
    all
}

/// What a tensor is rounded to as it is loaded.
fn rounded(tensor: &Outline, part: Part, config: &EngineConfig) -> Option<GgmlDType> {
    let kind = config.weight_kind?.ggml();
    let dense = tensor.kind.ggml().is_some_and(|stored| stored.block_size() == 1);
    match part {
        Part::Small | Part::Tower => None,
        _ if !dense => None,
        Part::Embedding | Part::Head => Some(at_least_eight_bits(kind)),
        _ => Some(kind),
    }
}

/// What a tensor is for, by its name.
fn part_of(name: &str, spec: Option<&DecoderSpec>) -> Part {
    const TOWERS: [&str; 9] = [
        "visual",
        "vision_tower",
        "vision_model",
        "audio_tower",
        "multi_modal_projector",
        "projector",
        "mlp_AR",
        "aligner",
        "mm",
    ];
    let has = |word: &str| name.split('.').any(|part| part == word);
    let names = spec.map(|spec| spec.names);
    let (embedding, head) = names.map_or(("embed_tokens", "lm_head"), |it| (it.embedding, it.head));
    let layers = spec.map_or(usize::MAX, |spec| spec.attention.len());
    let layer = name.split_once("layers.").and_then(|(_, rest)| rest.split('.').next());
    let behind = layer.and_then(|layer| layer.parse().ok()).is_some_and(|at: usize| at >= layers);
    if TOWERS.iter().any(|word| has(word)) {
        Part::Tower
    } else if has("mtp") || behind {
        Part::Drafts
    } else if has("experts") {
        Part::Experts
    } else if name.ends_with(&format!("{embedding}.weight")) {
        Part::Embedding
    } else if name.ends_with(&format!("{head}.weight")) {
        Part::Head
    } else {
        Part::Layers
    }
}
