//! InternLM, InternLM2 and InternLM3, as configured by their own code on the hub. The first is Llama
//! with biases of the attention. The second has queries, keys and values fused by key head, and tensor
//! names of its own; the third is Llama with one switch for the biases of all projections and one for
//! those of queries, keys and values.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, Result, base, set_biases,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("InternLMForCausalLM", spec_1),
    Architecture::new("InternLM2ForCausalLM", spec_2),
    Architecture::new("InternLM3ForCausalLM", spec_3),
];

fn spec_1(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults::LLAMA)?;
    set_biases(&mut spec, config.field_or("bias", true)?, false);
    Ok(spec)
}

pub(super) fn spec_2(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults::LLAMA)?;
    let bias = config.field_or("bias", true)?;
    set_biases(&mut spec, bias, false);
    spec.block = Block::pre_norm("attention_norm", "ffn_norm");
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

fn spec_3(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(2),
        head_dim: Some(128),
        context: 32768,
        norm_eps: 1e-5,
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    // Files of transformers 5 call both switches as Llama's do.
    let bias = config.field("bias")?.or(config.mlp_bias).unwrap_or(false);
    set_biases(&mut spec, bias, bias);
    let qkv_bias = config.field("qkv_bias")?.or(config.attention_bias).unwrap_or(false);
    for layer in &mut spec.attention {
        layer.qkv_bias = qkv_bias;
    }
    Ok(spec)
}
