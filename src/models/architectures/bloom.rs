//! Bloom: scores that fall with the distance instead of a rotation, a norm of the embeddings, norms
//! by mean and variance, biases everywhere, a feed-forward part without a gate, and queries, keys
//! and values in one tensor, head by head.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases, set_layer_norm};
use crate::models::config::{Fields, HfConfig};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::Names;

/// Its own names of common fields.
pub(crate) fn complete(fields: &mut Fields<'_>) {
    fields.same("hidden_size", "n_embed");
    fields.same("num_hidden_layers", "n_layer");
    fields.same("num_attention_heads", "n_head");
    fields.same("max_position_embeddings", "seq_length");
    fields.multiple("intermediate_size", "hidden_size", 4);
}

/// What `BloomForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
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
