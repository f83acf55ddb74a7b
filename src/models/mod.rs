//! The models: one decoder, one small `spec()` file per architecture, one table.
//!
//! An architecture is a row of the table and a pure function from `config.json` to a
//! [`DecoderSpec`]. Nothing outside of the table matches on its name.

use candle_core::{Result, Tensor};

use crate::layers::forward::{ForwardBatch, ForwardContext, KvShape};
use crate::weights::{WeightError, Weights};
use config::HfConfig;
use decoder::{Decoder, DecoderSpec};

pub mod config;
pub mod decoder;
pub mod encoder;
mod llama;
mod mistral;
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
const ARCHITECTURES: [(&str, SpecFn); 4] = [
    ("LlamaForCausalLM", llama::spec),
    ("MistralForCausalLM", mistral::spec),
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
    match config.architectures.iter().find_map(known) {
        Some((_, spec)) => spec(config),
        None => Err(ModelError::Unsupported {
            what: format!("architecture {}", config.architectures.join(", ")),
            supported: format!(
                "supported are {}",
                architectures().chain(encoder::architectures()).collect::<Vec<_>>().join(", ")
            ),
        }),
    }
}

/// Builds the model that a configuration stands for from its weights.
pub fn load(
    config: &HfConfig,
    weights: &Weights,
) -> std::result::Result<Box<dyn CausalLm>, ModelError> {
    let spec = spec(config)?;
    Ok(Box::new(Decoder::load(&spec, weights)?))
}
