//! GLM-4 and GLM-4-0414: Llama with biases on the query, key and value projections, gate and up in
//! one tensor, and half of each head rotated in neighbouring pairs. The newer one also has norms
//! behind attention and feed-forward part.

use crate::layers::mlp::MlpTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base};
use crate::models::config::HfConfig;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::Block;

/// What `GlmForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        kv_heads: Some(2),
        head_dim: Some(128),
        context: 131_072,
        norm_eps: 1.5625e-7,
        rope: RopeDefaults { theta: 10_000.0, share: 0.5, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let rotated = spec.ropes.first().map(|rope| rope.rotary_dim);
    for layer in &mut spec.attention {
        layer.qkv_bias = config.attention_bias.unwrap_or(true);
        layer.rope_neighbours = rotated;
    }
    spec.mlp.tensors = MlpTensors::GateAndUp(["gate_up_proj", "down_proj"]);
    Ok(spec)
}

/// What `Glm4ForCausalLM` means.
pub(crate) fn spec_4(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = spec(config)?;
    spec.block = Block {
        after_attention: Some("post_self_attn_layernorm"),
        after_mlp: Some("post_mlp_layernorm"),
        ..Block::PRE_NORM
    };
    Ok(spec)
}
