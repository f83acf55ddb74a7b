//! Helium: Llama with an interleaved rotary embedding and heads of 128 elements.

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, RopeDefaults, base,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("HeliumForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
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
        layer.interleaved_rope = Some(layer.head_dim);
    }
    Ok(spec)
}
