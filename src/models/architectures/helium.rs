//! Helium: Llama with a rotary embedding of neighbouring pairs and heads of 128.

use crate::models::ModelError;
use crate::models::common::base::{Defaults, base};
use crate::models::config::HfConfig;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;

/// What `HeliumForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        kv_heads: Some(20),
        head_dim: Some(128),
        context: 4096,
        norm_eps: 1e-8,
        rope: RopeDefaults { theta: 100_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    spec.mlp.bias = config.mlp_bias.unwrap_or(false);
    for layer in &mut spec.attention {
        layer.qkv_bias = config.attention_bias.unwrap_or(false);
        layer.rope_neighbours = Some(layer.head_dim);
    }
    Ok(spec)
}
