//! InternLM2 and InternLM3, whose configurations are those of their own code on the hub. The first
//! has queries, keys and values in one tensor, grouped by key head, and names of its own; the
//! second is Llama with one switch for biases of the attention and one of the projections alone.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases};
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Names};

/// What `InternLM2ForCausalLM` means.
pub(crate) fn spec_2(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = base(config, &Defaults::LLAMA)?;
    let bias = config.field("bias")?.unwrap_or(true);
    set_biases(&mut spec, bias, false);
    spec.block = Block {
        before_attention: Some("attention_norm"),
        before_mlp: Some("ffn_norm"),
        ..Block::PRE_NORM
    };
    spec.names = Names {
        embedding: "tok_embeddings",
        head: "output",
        attention: "attention",
        mlp: "feed_forward",
        ..Names::COMMON
    };
    spec.mlp.tensors = MlpTensors::Gated(["w1", "w3", "w2"]);
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Grouped("wqkv");
        layer.output = "wo";
    }
    Ok(spec)
}

/// What `InternLM3ForCausalLM` means.
pub(crate) fn spec_3(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        kv_heads: Some(2),
        head_dim: Some(128),
        context: 32768,
        norm_eps: 1e-5,
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    // Files of transformers 5 have Llama's names of both switches.
    let bias = config.field("bias")?.or(config.mlp_bias).unwrap_or(false);
    set_biases(&mut spec, bias, bias);
    let qkv_bias = config.field("qkv_bias")?.or(config.attention_bias).unwrap_or(false);
    for layer in &mut spec.attention {
        layer.qkv_bias = qkv_bias;
    }
    Ok(spec)
}
