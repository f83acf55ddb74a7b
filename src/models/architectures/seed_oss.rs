//! Seed-OSS: Llama with biases on the query, key and value projections and heads of 128.

use crate::models::ModelError;
use crate::models::common::base::{Defaults, base};
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;

/// What `SeedOssForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults =
        Defaults { kv_heads: Some(8), head_dim: Some(128), context: 524_288, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.mlp.bias = config.mlp_bias.unwrap_or(false);
    let output = config.field::<bool>("attention_out_bias")?.unwrap_or(false);
    for layer in &mut spec.attention {
        layer.qkv_bias = config.attention_bias.unwrap_or(true);
        layer.output_bias = output;
    }
    Ok(spec)
}
