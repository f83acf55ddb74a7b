//! BitNet b1.58: Llama with squared ReLU, a norm of what all heads give together before the output
//! projection, and a norm between the feed-forward part's projections. Weights may be ternary in GGUF
//! files.

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, RopeDefaults, base, read_attention_bias,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("BitNetForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(5),
        norm_eps: 1e-5,
        activation: "relu2",
        rope: RopeDefaults { theta: 500_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_attention_bias(config, &mut spec);
    spec.mlp.inner_norm = Some(("ffn_sub_norm", spec.norm));
    for layer in &mut spec.attention {
        layer.output_norm = Some(("attn_sub_norm", spec.norm));
    }
    Ok(spec)
}
