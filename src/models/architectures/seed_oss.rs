//! Seed-OSS: Llama with biases of the query, key and value projections and heads of 128 elements.

use crate::models::common::{Architecture, DecoderSpec, Defaults, HfConfig, Result, base};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("SeedOssForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults =
        Defaults { kv_heads: Some(8), head_dim: Some(128), context: 524_288, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.mlp.bias = config.mlp_bias.unwrap_or(false);
    let output = config.field_or("attention_out_bias", false)?;
    for layer in &mut spec.attention {
        layer.qkv_bias = config.attention_bias.unwrap_or(true);
        layer.output_bias = output;
    }
    Ok(spec)
}
