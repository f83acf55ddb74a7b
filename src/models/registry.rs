//! The table of architectures: from a class name in `config.json` to a loaded model.

use std::sync::Arc;

use candle_core::Device;
use serde_json::Value;

use super::architectures::{ALL, EMBEDDERS, pools_itself};
use super::causal_lm::CausalLm;
use super::common::Architecture;
use super::config::HfConfig;
use super::decoder::spec::{Head, LongerContexts};
use super::decoder::{Decoder, DecoderSpec, Stage};
use super::encoder;
use super::error::{ModelError, Result, bad};
use super::top::Top;
use crate::kernels::indexer::selects_on;
use crate::layers::group::{Alone, Group};
use crate::weights::Weights;

/// Why contexts are shorter where tokens aren't selected.
const ON_CPU: &str = "in longer ones its layers see only what an indexer chooses, which is computed on the CPU alone";

impl HfConfig {
    /// Parses and checks the text of a `config.json`.
    ///
    /// # Errors
    ///
    /// Broken JSON, an absent size, a size of zero, sizes that don't divide, a quantization of
    /// other software.
    pub fn from_json(text: &str) -> Result<Self> {
        Self::from_value(&serde_json::from_str(text)?)
    }

    /// Checks the content of a `config.json`, whose class may rename or add fields.
    ///
    /// # Errors
    ///
    /// As [`HfConfig::from_json`].
    pub fn from_value(value: &Value) -> Result<Self> {
        Self::read(value, |class| find(class)?.0.complete)
    }
}

fn rows() -> impl Iterator<Item = &'static Architecture> {
    ALL.iter().copied().flatten()
}

/// The row of a class, and what the class has on top of its decoder. A class that no row names is
/// one that transformers makes of a row's family: `LlamaModel`, `LlamaForSequenceClassification`.
fn find(class: &str) -> Option<(&'static Architecture, Top)> {
    if let Some(row) = rows().find(|row| row.class == class) {
        return Some((row, Top::LanguageModel));
    }
    let (family, top) = Top::split(class)?;
    let of_family =
        |row: &&Architecture| Top::split(row.class).is_some_and(|(own, _)| own == family);
    let embedder = || EMBEDDERS.iter().copied().flatten().find(|row| row.class == class);
    rows().find(of_family).map(|row| (row, top)).or(embedder().map(|row| (row, Top::Nothing)))
}

/// Class names of the decoders that only embed.
pub fn embedders() -> impl Iterator<Item = &'static str> {
    EMBEDDERS.iter().copied().flatten().map(|row| row.class)
}

/// Whether the code of a configuration's class pools by itself: then a text's vector is the state of its
/// last token, scaled to length 1, whatever modules stand beside it.
pub fn pools_by_last(config: &Value) -> bool {
    pools_itself(config)
}

/// What the class that a configuration names has on top of its decoder, if the class is known.
pub fn top(config: &HfConfig) -> Option<Top> {
    config.architectures.iter().find_map(|class| find(class)).map(|(_, top)| top)
}

/// Class names of all decoders that [`load`] can build, as in `config.json`'s `architectures`.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    rows().map(|row| row.class)
}

/// The decoder that a configuration describes, as plain data.
///
/// # Errors
///
/// An architecture that is not supported; a field whose value the architecture can't have.
pub fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let Some((row, top)) = config.architectures.iter().find_map(|class| find(class)) else {
        return Err(unknown(&config.architectures));
    };
    let mut spec = (row.spec)(config)?;
    if top != Top::LanguageModel {
        spec.head = Head::Absent;
    }
    if spec.attention.iter().any(|layer| layer.rope.is_some_and(|rope| rope >= spec.ropes.len())) {
        let bound = "must be one for all layers of this architecture";
        return Err(bad("rope_parameters", "one for each kind of layer", bound));
    }
    Ok(spec)
}

/// As [`spec`], of what is computed on a device: contexts are shorter where it can't select tokens of them.
///
/// # Errors
///
/// As [`spec`].
pub fn spec_on(config: &HfConfig, device: &Device) -> Result<DecoderSpec> {
    let spec = spec(config)?;
    Ok(if selects_on(device) { spec } else { spec.without_selection(ON_CPU) })
}

/// The same, of a model that is about to be loaded: says if it is limited.
fn spec_to_load(config: &HfConfig, device: &Device) -> Result<DecoderSpec> {
    let spec = spec_on(config, device)?;
    if let Some(LongerContexts { declared, reason }) = spec.longer_contexts {
        let longest = spec.max_position_embeddings;
        tracing::warn!(
            longest,
            declared,
            "the model has contexts of at most {longest} tokens: {reason}"
        );
    }
    Ok(spec)
}

/// Architectures of which a reason is known why they are not supported, and what to take.
const ELSEWHERE: [(&str, &str); 1] = [(
    "Phi4MMForCausalLM",
    "a request with pictures is computed with another LoRA than one of text alone, in every layer, which no \
     step chooses here; its decoder for texts is Phi-4-mini",
)];

fn unknown(names: &[String]) -> ModelError {
    if let Some((name, hint)) = ELSEWHERE.iter().find(|(name, _)| names.iter().any(|n| n == name)) {
        let what = format!("architecture {name}");
        return ModelError::Unsupported { what, supported: (*hint).to_owned() };
    }
    let decoders = architectures().chain(embedders()).map(str::to_owned);
    let supported: Vec<String> = decoders.chain(encoder::architectures()).collect();
    let nearest = names.first().and_then(|name| nearest(name));
    let nearest = nearest.map_or_else(String::new, |own| format!("; the nearest by name is {own}"));
    ModelError::Unsupported {
        what: format!("architecture {}", names.join(", ")),
        supported: format!("supported are {}{nearest}", supported.join(", ")),
    }
}

/// The class that shares the longest prefix with `name`, if at least three letters.
fn nearest(name: &str) -> Option<&'static str> {
    let common = |known: &str| {
        let pairs = known.bytes().zip(name.bytes());
        pairs.take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count()
    };
    let exact = |known: &str| known.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
    // Among equals `max_by_key` takes the last, which tends to be the newest.
    let nearest = architectures().max_by_key(|known| (common(known), exact(known)));
    nearest.filter(|known| common(known) >= 3)
}

/// Builds the model that a configuration describes from its weights.
///
/// # Errors
///
/// As [`spec`]; a tensor that is absent or has another shape.
pub fn load(config: &HfConfig, weights: &Weights) -> Result<Box<dyn CausalLm>> {
    load_part(config, weights, Arc::new(Alone))
}

/// A model, and the head of its checkpoint that drafts.
pub struct WithDraftHead {
    /// The model.
    pub model: Box<dyn CausalLm>,
    /// The head with the bytes of its matrices, if there is one.
    pub head: Option<(Box<dyn CausalLm>, usize)>,
}

/// Builds the model that a configuration describes, and the head that its checkpoint has for drafting the
/// token after the next one. A head that can't be loaded is left out with a warning.
///
/// # Errors
///
/// As [`load`].
pub fn load_with_draft_head(config: &HfConfig, weights: &Weights) -> Result<WithDraftHead> {
    let spec = spec_to_load(config, weights.device())?;
    let decoder = Decoder::load(&spec, weights, Arc::new(Alone))?;
    let before = weights.tally().bytes();
    let generates = spec.head != Head::Absent;
    let head = if generates { decoder.draft_head(weights) } else { Ok(None) };
    // A checkpoint with a head of another shape than is known here generates all the same.
    let head = head.unwrap_or_else(|error| {
        tracing::warn!("the head that drafts is left out: {error}");
        None
    });
    let head = head.map(|head| -> (Box<dyn CausalLm>, usize) {
        (Box::new(head), weights.tally().bytes() - before)
    });
    Ok(WithDraftHead { model: Box::new(decoder), head })
}

/// Builds the part of a model that one rank of a tensor-parallel group computes.
///
/// # Errors
///
/// As [`load`]; a model that can't be split over the group.
pub fn load_part(
    config: &HfConfig,
    weights: &Weights,
    group: Arc<dyn Group>,
) -> Result<Box<dyn CausalLm>> {
    let spec = spec_to_load(config, weights.device())?;
    Ok(Box::new(Decoder::load(&spec, weights, group)?))
}

/// Builds the layers of a model that one stage of several computes.
///
/// # Errors
///
/// As [`load`]; more stages than layers, or layers that must stay together.
pub fn load_stage(config: &HfConfig, weights: &Weights, stage: Stage) -> Result<Box<dyn CausalLm>> {
    let spec = spec_to_load(config, weights.device())?;
    Ok(Box::new(Decoder::load_stage(&spec, weights, Arc::new(Alone), stage)?))
}
