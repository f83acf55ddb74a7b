//! StableLM: Llama with norms by mean and variance and a quarter of each head rotated; biases of
//! the query, key and value projections, norms of each head and the parallel form are options.

use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_layer_norm};
use crate::models::config::HfConfig;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::Block;

/// What `StableLmForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        kv_heads: Some(32),
        context: 4096,
        rope: RopeDefaults { theta: 10_000.0, share: 0.25, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    set_layer_norm(config, &mut spec, "layer_norm_eps", true)?;
    let bias = config.field::<bool>("use_qkv_bias")?.unwrap_or(false);
    let norm = config.field::<bool>("qk_layernorm")?.unwrap_or(false).then_some(QueryKeyNorm {
        norm: spec.norm,
        over: NormSpan::EachHead,
        tensors: ["q_layernorm", "k_layernorm"],
    });
    for layer in &mut spec.attention {
        layer.qkv_bias = bias;
        layer.query_key_norm = norm;
    }
    if config.field::<bool>("use_parallel_residual")?.unwrap_or(false) {
        spec.block = Block::PARALLEL;
    }
    Ok(spec)
}
