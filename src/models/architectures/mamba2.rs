//! Mamba 2: every layer is a selective state space, and nothing else.
//!
//! Dao and Gu, "Transformers are SSMs", 2024.

use crate::models::ModelError;
use crate::models::common::base::{Defaults, base};
use crate::models::common::state_space::{SpaceFields, recurrent};
use crate::models::config::{Fields, HfConfig};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Names};

/// A state has no longest sequence, and files name none; the server needs one to bound what a
/// request may ask for. This is as long as what hybrids of the same state spaces declare.
const CONTEXT: usize = 262_144;

const FIELDS: SpaceFields = SpaceFields {
    heads: "num_heads",
    head_dim: "head_dim",
    state_size: ("state_size", 128),
    groups: ("n_groups", 8),
    taps: "conv_kernel",
    expand: Some("expand"),
    conv_bias: "use_conv_bias",
    bias: "use_bias",
    activation: "hidden_act",
};

/// Sizes of what it doesn't have, and its own name of the norms' epsilon.
pub(crate) fn complete(fields: &mut Fields<'_>) {
    fields.default("num_attention_heads", 1);
    fields.default("intermediate_size", 1);
    fields.same("rms_norm_eps", "layer_norm_epsilon");
}

/// What `Mamba2ForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults { context: CONTEXT, norm_eps: 1e-5, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.names = Names {
        roots: &["backbone.", "model."],
        embedding: "embeddings",
        norm: "norm_f",
        ..Names::COMMON
    };
    spec.block = Block { before_attention: Some("norm"), before_mlp: None, ..Block::PRE_NORM };
    spec.mlp.intermediate_size = 0;
    // No layer attends.
    spec.ropes.clear();
    for layer in &mut spec.attention {
        layer.rope = None;
    }
    let layers = vec![true; config.num_hidden_layers];
    spec.recurrent = recurrent(config, &FIELDS, spec.norm.eps, layers, "mixer")?;
    Ok(spec)
}
