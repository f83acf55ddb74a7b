//! The models: one decoder, one small `spec()` file per architecture, one table.
//!
//! An architecture is a row of the table and a pure function from `config.json` to a
//! [`DecoderSpec`]. Nothing outside of the table matches on its name.

use candle_core::{Result, Tensor};

use crate::layers::forward::{ForwardBatch, ForwardContext, KvShape};
use crate::weights::{WeightError, Weights};
use config::HfConfig;
use decoder::{Decoder, DecoderSpec};

mod base;
pub mod config;
pub mod decoder;
pub mod encoder;
mod gemma;
mod llama;
mod mistral;
mod phi3;
mod qwen2;
mod qwen3;

/// What one step of a model gives, in f32 on the context's device.
#[derive(Clone, Debug)]
pub struct ForwardOutput {
    /// `[batch.logits_rows.len(), vocab_size]`, in memory that nothing else refers to.
    pub logits: Tensor,
    /// `[batch.hidden_rows.len(), hidden_size]`: the hidden states that logits are made of, behind
    /// the last norm. `None` if the batch wants none.
    pub hidden: Option<Tensor>,
}

/// A causal language model over a paged KV cache.
pub trait CausalLm: Send {
    /// Runs one step: writes K and V of every token of the batch and returns what it wants.
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput>;

    /// The KV cache this model needs.
    fn kv_shape(&self) -> KvShape;

    /// Number of logits.
    fn vocab_size(&self) -> usize;

    /// Elements of a hidden state.
    fn hidden_size(&self) -> usize;

    /// The longest sequence the checkpoint declares.
    fn max_position_embeddings(&self) -> usize;
}

/// Why a model can't be built.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// `config.json` is not valid JSON or a field has the wrong type.
    #[error("config.json: {0}")]
    Config(#[from] serde_json::Error),
    /// A field of `config.json` has a value that no such model can have.
    #[error("config.json: `{field}` is {value}, {bound}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// What it is.
        value: String,
        /// What it must be.
        bound: String,
    },
    /// The checkpoint asks for something that is not implemented.
    #[error("{what} is not supported; {supported}")]
    Unsupported {
        /// What it asks for.
        what: String,
        /// What would work.
        supported: String,
    },
    /// The weights don't match the configuration or can't be read.
    #[error(transparent)]
    Weights(#[from] WeightError),
}

/// Computes an architecture's spec.
type SpecFn = fn(&HfConfig) -> std::result::Result<DecoderSpec, ModelError>;

/// Names as in `config.json`'s `architectures`.
const ARCHITECTURES: &[(&str, SpecFn)] = &[
    ("GemmaForCausalLM", gemma::spec),
    ("Gemma2ForCausalLM", gemma::spec_2),
    ("Gemma3ForCausalLM", gemma::spec_3),
    ("Gemma3ForConditionalGeneration", gemma::spec_3),
    ("LlamaForCausalLM", llama::spec),
    ("MistralForCausalLM", mistral::spec),
    ("MinistralForCausalLM", mistral::spec),
    ("Phi3ForCausalLM", phi3::spec),
    ("Qwen2ForCausalLM", qwen2::spec),
    ("Qwen3ForCausalLM", qwen3::spec),
];

/// Names of the architectures that [`load`] knows.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    ARCHITECTURES.iter().map(|(name, _)| *name)
}

/// The plain-data description of the model that a configuration stands for.
pub fn spec(config: &HfConfig) -> std::result::Result<DecoderSpec, ModelError> {
    let known = |name: &String| ARCHITECTURES.iter().find(|(known, _)| known == name);
    let Some((_, spec)) = config.architectures.iter().find_map(known) else {
        return Err(unknown(&config.architectures));
    };
    let spec = spec(config)?;
    if spec.attention.iter().any(|layer| layer.rope.is_some_and(|rope| rope >= spec.ropes.len())) {
        let bound = "must be one for all layers of this architecture";
        return Err(config::bad("rope_parameters", "one for each kind of layer", bound));
    }
    Ok(spec)
}

fn unknown(names: &[String]) -> ModelError {
    let supported: Vec<&str> = architectures().chain(encoder::architectures()).collect();
    let kin = names.first().and_then(|name| nearest(name));
    let kin = kin.map_or_else(String::new, |kin| format!("; the nearest by name is {kin}"));
    ModelError::Unsupported {
        what: format!("architecture {}", names.join(", ")),
        supported: format!("supported are {}{kin}", supported.join(", ")),
    }
}

/// The decoder whose name begins most like `name`, if at least three letters are the same.
fn nearest(name: &str) -> Option<&'static str> {
    let common = |known: &str| {
        let pairs = known.bytes().zip(name.bytes());
        pairs.take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count()
    };
    // Of equally near ones the last: families are listed from old to new.
    architectures().max_by_key(|known| common(known)).filter(|known| common(known) >= 3)
}

/// Builds the model that a configuration stands for from its weights.
pub fn load(
    config: &HfConfig,
    weights: &Weights,
) -> std::result::Result<Box<dyn CausalLm>, ModelError> {
    let spec = spec(config)?;
    Ok(Box::new(Decoder::load(&spec, weights)?))
}
