//! StableLM: Llama with layer norms and a quarter of each head rotated; biases of the query, key
//! and value projections, norms of each head and the parallel form are options.

use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Result, RopeDefaults, base,
    set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("StableLmForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(32),
        context: 4096,
        rope: RopeDefaults { theta: 10_000.0, share: 0.25, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    set_layer_norm(config, &mut spec, "layer_norm_eps", true)?;
    let bias = config.field_or("use_qkv_bias", false)?;
    let norm = config.field_or("qk_layernorm", false)?.then_some(QueryKeyNorm {
        norm: spec.norm,
        over: NormSpan::EachHead,
        tensors: ["q_layernorm", "k_layernorm"],
    });
    for layer in &mut spec.attention {
        layer.qkv_bias = bias;
        layer.query_key_norm = norm;
    }
    if config.field_or("use_parallel_residual", false)? {
        spec.block = Block::PARALLEL;
    }
    Ok(spec)
}
