//! The models: one decoder, one small `spec()` file per architecture, one table.
//!
//! An architecture is a row of the table and a pure function from `config.json` to a
//! [`DecoderSpec`]. Nothing outside of the table matches on its name.

use std::sync::Arc;

use candle_core::{Result, Tensor};

use crate::layers::forward::{ForwardBatch, ForwardContext, KvShape};
use crate::layers::group::{Alone, Group};
use crate::weights::{WeightError, Weights};
use adapter::AdapterLayout;
use config::HfConfig;
use decoder::{Decoder, DecoderSpec};

use architectures::{
    apertus, arcee, bamba, bloom, cohere, deepseek, ernie4_5, exaone, falcon, gemma, gemma4, glm,
    glm_moe, gpt_neox, gpt_oss, gpt2, granite, granite_hybrid, granite_moe, helium, hunyuan,
    internlm, lfm2, llama, llama4, mamba2, minimax_m2, mistral, mixtral, mpt, nemotron, nemotron_h,
    olmo, olmoe, phi, phi3, qwen_moe, qwen2, qwen3, qwen3_next, seed_oss, smollm3, stablelm,
    starcoder2,
};

pub mod adapter;
pub mod config;
pub mod decoder;
pub mod encoder;

mod architectures;
mod common;

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

    /// Most tokens of a sequence that are computed as those of short ones; once there are more, all
    /// of them are to be computed again. `None`: there is no such length.
    fn longest_unchanged(&self) -> Option<usize> {
        None
    }

    /// What adapters may change, if the model takes any.
    fn adapter_layout(&self) -> Option<AdapterLayout> {
        None
    }
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
    /// Not every model can be computed by several ranks.
    #[error("the model can't be split over {size} ranks: {reason}")]
    Split {
        /// How many were asked for.
        size: usize,
        /// What of it can't be.
        reason: String,
    },
    /// The weights don't match the configuration or can't be read.
    #[error(transparent)]
    Weights(#[from] WeightError),
}

/// Computes an architecture's spec.
type SpecFn = fn(&HfConfig) -> std::result::Result<DecoderSpec, ModelError>;

/// Names as in `config.json`'s `architectures`.
const ARCHITECTURES: &[(&str, SpecFn)] = &[
    ("ApertusForCausalLM", apertus::spec),
    ("ArceeForCausalLM", arcee::spec),
    ("BambaForCausalLM", bamba::spec),
    ("BloomForCausalLM", bloom::spec),
    ("Cohere2ForCausalLM", cohere::spec_2),
    ("CohereForCausalLM", cohere::spec),
    ("DeepseekV2ForCausalLM", deepseek::spec_2),
    ("DeepseekV3ForCausalLM", deepseek::spec_3),
    ("Dots1ForCausalLM", glm_moe::dots),
    ("Ernie4_5ForCausalLM", ernie4_5::spec),
    ("Exaone4ForCausalLM", exaone::spec_4),
    ("ExaoneForCausalLM", exaone::spec_3),
    ("Ernie4_5_MoeForCausalLM", ernie4_5::moe),
    ("FalconForCausalLM", falcon::spec),
    ("GPT2LMHeadModel", gpt2::spec),
    ("GPTNeoXForCausalLM", gpt_neox::spec),
    ("Gemma2ForCausalLM", gemma::spec_2),
    ("Gemma3ForCausalLM", gemma::spec_3),
    ("Gemma3ForConditionalGeneration", gemma::spec_3),
    ("Gemma4ForCausalLM", gemma4::spec),
    ("Gemma4ForConditionalGeneration", gemma4::spec),
    ("GemmaForCausalLM", gemma::spec),
    ("Glm4ForCausalLM", glm::spec_4),
    ("GlmForCausalLM", glm::spec),
    ("GptOssForCausalLM", gpt_oss::spec),
    ("GraniteForCausalLM", granite::spec),
    ("Glm4MoeForCausalLM", glm_moe::spec),
    ("GraniteMoeForCausalLM", granite_moe::spec),
    ("GraniteMoeHybridForCausalLM", granite_hybrid::spec),
    ("HeliumForCausalLM", helium::spec),
    ("HunYuanDenseV1ForCausalLM", hunyuan::spec),
    ("InternLM2ForCausalLM", internlm::spec_2),
    ("InternLM3ForCausalLM", internlm::spec_3),
    ("Lfm2ForCausalLM", lfm2::spec),
    ("Lfm2MoeForCausalLM", lfm2::moe),
    ("Llama4ForCausalLM", llama4::spec),
    ("Llama4ForConditionalGeneration", llama4::spec),
    ("LlamaForCausalLM", llama::spec),
    ("Mamba2ForCausalLM", mamba2::spec),
    ("MiniMaxM2ForCausalLM", minimax_m2::spec),
    ("MinistralForCausalLM", mistral::spec),
    ("Ministral3ForCausalLM", mistral::spec_3),
    ("Mistral3ForConditionalGeneration", mistral::spec_3),
    ("MistralForCausalLM", mistral::spec),
    ("MixtralForCausalLM", mixtral::spec),
    ("MptForCausalLM", mpt::spec),
    ("NemotronForCausalLM", nemotron::spec),
    ("NemotronHForCausalLM", nemotron_h::spec),
    ("Olmo2ForCausalLM", olmo::spec_2),
    ("Olmo3ForCausalLM", olmo::spec_3),
    ("OlmoForCausalLM", olmo::spec),
    ("OlmoeForCausalLM", olmoe::spec),
    ("Phi3ForCausalLM", phi3::spec),
    ("PhiForCausalLM", phi::spec),
    ("Qwen2ForCausalLM", qwen2::spec),
    ("Qwen3ForCausalLM", qwen3::spec),
    ("Qwen3NextForCausalLM", qwen3_next::spec),
    ("Qwen3_5ForCausalLM", qwen3_next::spec_5),
    ("Qwen3_5ForConditionalGeneration", qwen3_next::spec_5),
    ("Qwen3_5MoeForCausalLM", qwen3_next::moe_5),
    ("Qwen3_5MoeForConditionalGeneration", qwen3_next::moe_5),
    ("Qwen2MoeForCausalLM", qwen_moe::spec_2),
    ("Qwen3MoeForCausalLM", qwen_moe::spec_3),
    ("SeedOssForCausalLM", seed_oss::spec),
    ("SmolLM3ForCausalLM", smollm3::spec),
    ("StableLmForCausalLM", stablelm::spec),
    ("Starcoder2ForCausalLM", starcoder2::spec),
];

/// Adds fields that the shape of a model depends on.
type Completion = fn(&mut config::Fields<'_>);

/// Classes whose files leave such fields out, or call them otherwise.
const COMPLETIONS: &[(&str, Completion)] = &[
    ("BloomForCausalLM", bloom::complete),
    ("ExaoneForCausalLM", exaone::complete_3),
    ("FalconForCausalLM", falcon::complete),
    ("GPT2LMHeadModel", gpt2::complete),
    ("Gemma3ForConditionalGeneration", gemma::complete),
    ("Gemma4ForCausalLM", gemma4::complete),
    ("Gemma4ForConditionalGeneration", gemma4::complete),
    ("GraniteMoeHybridForCausalLM", granite_hybrid::complete),
    ("Lfm2ForCausalLM", lfm2::complete),
    ("Lfm2MoeForCausalLM", lfm2::complete),
    ("Mamba2ForCausalLM", mamba2::complete),
    ("MptForCausalLM", mpt::complete),
    ("NemotronHForCausalLM", nemotron_h::complete),
    ("Qwen3NextForCausalLM", qwen3_next::complete),
    ("Qwen3_5MoeForCausalLM", qwen3_next::complete_moe_5),
    ("Qwen3_5MoeForConditionalGeneration", qwen3_next::complete_moe_5),
];

/// What completes files of this class.
fn completion(class: &str) -> Option<Completion> {
    COMPLETIONS.iter().find(|(name, _)| *name == class).map(|(_, complete)| *complete)
}

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
    // Of equally near ones the last, which tends to be the newest.
    architectures().max_by_key(|known| common(known)).filter(|known| common(known) >= 3)
}

/// Builds the model that a configuration stands for from its weights.
pub fn load(
    config: &HfConfig,
    weights: &Weights,
) -> std::result::Result<Box<dyn CausalLm>, ModelError> {
    load_part(config, weights, Arc::new(Alone))
}

/// Builds the part of it that one rank of a group computes.
pub fn load_part(
    config: &HfConfig,
    weights: &Weights,
    group: Arc<dyn Group>,
) -> std::result::Result<Box<dyn CausalLm>, ModelError> {
    let spec = spec(config)?;
    Ok(Box::new(Decoder::load(&spec, weights, group)?))
}
