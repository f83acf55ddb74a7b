//! GPT-2: learned positions instead of a rotation, norms by mean and variance, biases everywhere, a
//! feed-forward part without a gate, queries, keys and values in one tensor, and matrices that are
//! stored the other way round.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases, set_layer_norm};
use crate::models::config::{Fields, HfConfig};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Names};

/// Its own names of common fields.
pub(crate) fn complete(fields: &mut Fields<'_>) {
    fields.same("hidden_size", "n_embd");
    fields.same("num_hidden_layers", "n_layer");
    fields.same("num_attention_heads", "n_head");
    fields.same("max_position_embeddings", "n_positions");
    fields.same("hidden_act", "activation_function");
    fields.same("intermediate_size", "n_inner");
    fields.multiple("intermediate_size", "hidden_size", 4);
}

/// What `GPT2LMHeadModel` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    config.only("add_cross_attention", false)?;
    let defaults =
        Defaults { context: 1024, tied: true, activation: "gelu_new", ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    set_biases(&mut spec, true, true);
    set_layer_norm(config, &mut spec, "layer_norm_epsilon", true)?;
    spec.learned_positions = Some("wpe");
    // Files of other formats may have them as everyone else.
    spec.turned_matrices = config.field("turned_matrices")?.unwrap_or(true);
    spec.names = Names {
        roots: &["transformer.", ""],
        embedding: "wte",
        layers: "h",
        norm: "ln_f",
        attention: "attn",
        ..Names::COMMON
    };
    spec.block =
        Block { before_attention: Some("ln_1"), before_mlp: Some("ln_2"), ..Block::PRE_NORM };
    spec.mlp.tensors = MlpTensors::Plain(["c_fc", "c_proj"]);
    let scaled = config.field("scale_attn_weights")?.unwrap_or(true);
    let by_layer = config.field("scale_attn_by_inverse_layer_idx")?.unwrap_or(false);
    let mut divisor = 1.0;
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Stacked("c_attn");
        layer.output = "c_proj";
        layer.rope = None;
        if !scaled {
            layer.params.scale = 1.0;
        }
        if by_layer {
            layer.params.scale /= divisor;
            divisor += 1.0;
        }
    }
    Ok(spec)
}
