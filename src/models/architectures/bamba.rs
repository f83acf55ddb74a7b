//! Bamba: most layers have a state space instead of attention, and half of each attention head is
//! rotated.

use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases};
use crate::models::common::state_space::{MAMBA_FIELDS, recurrent};
use crate::models::config::rope::RopeDefaults;
use crate::models::config::{HfConfig, bad};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Names};

/// What `BambaForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        context: 262_144,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 10_000.0, share: 0.5, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let biases = (config.attention_bias.unwrap_or(false), config.mlp_bias.unwrap_or(false));
    set_biases(&mut spec, biases.0, biases.1);
    spec.names = Names { norm: "final_layernorm", mlp: "feed_forward", ..Names::COMMON };
    spec.block = Block { before_mlp: Some("pre_ff_layernorm"), ..Block::PRE_NORM };
    let layers = spaced_layers(config)?;
    spec.recurrent = recurrent(config, &MAMBA_FIELDS, spec.norm.eps, layers, "mamba")?;
    Ok(spec)
}

/// All layers that `attn_layer_indices` doesn't name.
fn spaced_layers(config: &HfConfig) -> Result<Vec<bool>, ModelError> {
    let (field, layers) = ("attn_layer_indices", config.num_hidden_layers);
    let attention = config.field::<Vec<usize>>(field)?.unwrap_or_default();
    if let Some(beyond) = attention.iter().find(|index| **index >= layers) {
        return Err(bad(field, beyond, format!("must be below `num_hidden_layers` = {layers}")));
    }
    Ok((0..layers).map(|layer| !attention.contains(&layer)).collect())
}
