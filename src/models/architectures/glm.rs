//! GLM-4 and GLM-4-0414: Llama with biases of the query, key and value projections, gate and up in
//! one tensor, and an interleaved rotary embedding of half of each head. The newer one also has
//! norms after attention and feed-forward part; so has GLM-OCR's, which has no biases.

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
    Architecture::new("GlmOcrForConditionalGeneration", ocr),
];

/// How many pairs turn by time, by rows and by columns of pictures.
pub(super) const SECTIONS: [usize; 3] = [8, 12, 12];

const DEFAULTS: Defaults = Defaults {
    kv_heads: Some(2),
    head_dim: Some(128),
    context: 131_072,
    norm_eps: 1.5625e-7,
    rope: RopeDefaults { theta: 10_000.0, share: 0.5, partial: true },
    ..Defaults::LLAMA
};

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    with_defaults(config, &DEFAULTS)
}

fn with_defaults(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec> {
    let mut spec = base(config, defaults)?;
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

/// The decoder of GLM-OCR, which has no biases.
fn ocr(config: &HfConfig) -> Result<DecoderSpec> {
    let rope = RopeDefaults { share: 1.0, ..DEFAULTS.rope };
    let own = Defaults { kv_heads: Some(8), head_dim: None, norm_eps: 1e-5, rope, ..DEFAULTS };
    let spec = with_norms_after(with_defaults(config, &own)?);
    let mut spec = with_axes(config, spec, SECTIONS, false)?;
    for layer in &mut spec.attention {
        layer.qkv_bias = false;
    }
    Ok(spec)
}

fn spec_4(config: &HfConfig) -> Result<DecoderSpec> {
    spec(config).map(with_norms_after)
}

fn with_norms_after(mut spec: DecoderSpec) -> DecoderSpec {
    spec.block = Block {
        after_attention: Some("post_self_attn_layernorm"),
        after_mlp: Some("post_mlp_layernorm"),
        ..Block::PRE_NORM
    };
    spec
}
