//! Falcon: layer norms, an ungated feed-forward part parallel to attention, and fused queries, keys
//! and values. The first models have one key head and one norm for both parts; the later ones have
//! grouped heads and may have a norm for each part.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, RawFields, Result, base,
    set_biases, set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("FalconForCausalLM", spec).completed_by(complete)];

/// Falcon's names of common fields.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("hidden_size", "n_embed");
    fields.alias("num_hidden_layers", "n_layer");
    fields.alias("num_attention_heads", "n_head");
    fields.alias("num_key_value_heads", "num_kv_heads");
    fields.alias("num_key_value_heads", "n_head_kv");
    fields.alias("hidden_act", "activation");
    fields.alias("intermediate_size", "ffn_hidden_size");
    fields.multiple("intermediate_size", "hidden_size", 4);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("alibi", false)?;
    let defaults = Defaults { tied: true, activation: "gelu", ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    let bias = config.field_or("bias", false)?;
    set_biases(&mut spec, bias, bias);
    set_layer_norm(config, &mut spec, "layer_norm_epsilon", true)?;
    spec.names = Names {
        roots: &["transformer."],
        embedding: "word_embeddings",
        layers: "h",
        norm: "ln_f",
        attention: "self_attention",
        ..Names::COMMON
    };
    let grouped = config.field_or("new_decoder_architecture", false)?;
    let multi_query = config.field_or("multi_query", true)?;
    let norms = config.field::<usize>("num_ln_in_parallel_attn")?;
    spec.block = if grouped && norms != Some(1) {
        let (attention, mlp) = (Some("ln_attn"), Some("ln_mlp"));
        Block { before_attention: attention, before_mlp: mlp, ..Block::PARALLEL }
    } else if grouped || config.field_or("parallel_attn", true)? {
        Block::PARALLEL
    } else {
        Block::PRE_NORM
    };
    spec.mlp.tensors = MlpTensors::Plain(["dense_h_to_4h", "dense_4h_to_h"]);
    for layer in &mut spec.attention {
        layer.output = "dense";
        if !grouped {
            layer.num_kv_heads = if multi_query { 1 } else { layer.num_heads };
        }
        layer.qkv = QkvTensors::Grouped("query_key_value");
    }
    Ok(spec)
}
