//! GLM-4 and GLM-4-0414: Llama with biases of the query, key and value projections, gate and up in
//! one tensor, and an interleaved rotary embedding of half of each head. The newer one also has
//! norms after attention and feed-forward part.

use super::qwen_vl::with_axes;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Result, RopeDefaults, base,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("GlmForCausalLM", spec),
    Architecture::new("Glm4ForCausalLM", spec_4),
    Architecture::new("Glm4vForConditionalGeneration", spec_4v),
    Architecture::new("Glm46VForConditionalGeneration", spec_4v),
];

/// How many pairs turn by time, by rows and by columns of pictures.
pub(super) const SECTIONS: [usize; 3] = [8, 12, 12];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
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
        layer.interleaved_rope = rotated;
    }
    spec.mlp.tensors = MlpTensors::GateAndUp(["gate_up_proj", "down_proj"]);
    Ok(spec)
}

/// The decoder of GLM-4.1V and 4.6V-Flash.
fn spec_4v(config: &HfConfig) -> Result<DecoderSpec> {
    with_axes(config, spec_4(config)?, SECTIONS, false)
}

fn spec_4(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec(config)?;
    spec.block = Block {
        after_attention: Some("post_self_attn_layernorm"),
        after_mlp: Some("post_mlp_layernorm"),
        ..Block::PRE_NORM
    };
    Ok(spec)
}
