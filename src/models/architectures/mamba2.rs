//! Mamba 2: every layer is a selective state space, and nothing else.
//!
//! Dao and Gu, "Transformers are SSMs", 2024.

use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, RawFields, Result,
    StateSpaceFields, base, recurrent, remove_rope,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("Mamba2ForCausalLM", spec).completed_by(complete)];

/// Longest sequence. Files name none, since a state has no limit, but the server needs one to bound
/// requests: this is what hybrids of the same state spaces declare.
pub(super) const CONTEXT: usize = 262_144;

const FIELDS: StateSpaceFields = StateSpaceFields {
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

/// Sizes of parts that Mamba 2 doesn't have, and its name of the norms' epsilon.
pub(super) fn complete(fields: &mut RawFields<'_>) {
    fields.default("num_attention_heads", 1);
    fields.default("intermediate_size", 1);
    fields.alias("rms_norm_eps", "layer_norm_epsilon");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = without_layers(config, false)?;
    let layers = vec![true; config.num_hidden_layers];
    spec.recurrent = recurrent(config, &FIELDS, spec.norm.eps, layers, "mixer")?;
    Ok(spec)
}

/// The decoder but for what its layers compute.
pub(super) fn without_layers(config: &HfConfig, tied: bool) -> Result<DecoderSpec> {
    let defaults = Defaults { context: CONTEXT, norm_eps: 1e-5, tied, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.names = Names {
        roots: &["backbone.", "model."],
        embedding: "embeddings",
        norm: "norm_f",
        ..Names::COMMON
    };
    spec.block = Block { before_attention: Some("norm"), before_mlp: None, ..Block::PRE_NORM };
    spec.mlp.intermediate_size = 0;
    remove_rope(&mut spec);
    Ok(spec)
}
