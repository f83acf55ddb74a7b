//! Bamba: most layers have a state space instead of attention, and half of each attention head is
//! rotated.

use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, Result, RopeDefaults,
    StateSpaceFields, bad, base, read_biases, recurrent,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("BambaForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        context: 262_144,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 10_000.0, share: 0.5, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_biases(config, &mut spec);
    spec.names = Names { norm: "final_layernorm", mlp: "feed_forward", ..Names::COMMON };
    spec.block = Block { before_mlp: Some("pre_ff_layernorm"), ..Block::PRE_NORM };
    let layers = state_space_layers(config)?;
    spec.recurrent = recurrent(config, &StateSpaceFields::HYBRID, spec.norm.eps, layers, "mamba")?;
    Ok(spec)
}

/// Whether each layer has a state space: all that `attn_layer_indices` doesn't name.
fn state_space_layers(config: &HfConfig) -> Result<Vec<bool>> {
    let (field, layers) = ("attn_layer_indices", config.num_hidden_layers);
    let attention = config.field::<Vec<usize>>(field)?.unwrap_or_default();
    if let Some(beyond) = attention.iter().find(|index| **index >= layers) {
        return Err(bad(field, beyond, format!("must be below `num_hidden_layers` = {layers}")));
    }
    Ok((0..layers).map(|layer| !attention.contains(&layer)).collect())
}
