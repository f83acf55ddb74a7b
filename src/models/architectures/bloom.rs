//! Bloom: ALiBi instead of a rotary embedding, a norm of the embeddings, layer norms, biases
//! everywhere, an ungated feed-forward part, and queries, keys and values fused head by head.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Names, RawFields, Result, base, set_biases,
    set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("BloomForCausalLM", spec).completed_by(complete)];

/// Bloom's names of common fields.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("hidden_size", "n_embed");
    fields.alias("num_hidden_layers", "n_layer");
    fields.alias("num_attention_heads", "n_head");
    fields.alias("max_position_embeddings", "seq_length");
    fields.multiple("intermediate_size", "hidden_size", 4);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("apply_residual_connection_post_layernorm", false)?;
    let mut spec =
        base(config, &Defaults { tied: true, activation: "gelu_new", ..Defaults::LLAMA })?;
    set_biases(&mut spec, true, true);
    set_layer_norm(config, &mut spec, "layer_norm_epsilon", true)?;
    spec.embedding_norm = Some("word_embeddings_layernorm");
    spec.names = Names {
        roots: &["transformer.", ""],
        embedding: "word_embeddings",
        layers: "h",
        norm: "ln_f",
        attention: "self_attention",
        ..Names::COMMON
    };
    spec.mlp.tensors = MlpTensors::Plain(["dense_h_to_4h", "dense_4h_to_h"]);
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Grouped("query_key_value");
        layer.output = "dense";
        layer.rope = None;
        layer.alibi = Some(8.0);
    }
    Ok(spec)
}
