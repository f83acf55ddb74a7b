//! GPT-2: learned positions instead of a rotary embedding, layer norms, biases everywhere, an
//! ungated feed-forward part, fused queries, keys and values, and matrices that are stored
//! transposed.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, LearnedPositions, Names, RawFields,
    Result, base, set_biases, set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("GPT2LMHeadModel", spec).completed_by(complete)];

/// The names that GPT-2 and its successors have for common fields.
pub(super) fn complete(fields: &mut RawFields<'_>) {
    fields.alias("hidden_size", "n_embd");
    fields.alias("num_hidden_layers", "n_layer");
    fields.alias("num_attention_heads", "n_head");
    fields.alias("max_position_embeddings", "n_positions");
    fields.alias("hidden_act", "activation_function");
    fields.alias("intermediate_size", "n_inner");
    fields.multiple("intermediate_size", "hidden_size", 4);
}

pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("add_cross_attention", false)?;
    let defaults =
        Defaults { context: 1024, tied: true, activation: "gelu_new", ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    set_biases(&mut spec, true, true);
    set_layer_norm(config, &mut spec, "layer_norm_epsilon", true)?;
    spec.learned_positions = Some(LearnedPositions::from_zero("wpe"));
    // GGUF files have them in the common order.
    spec.transposed_matrices = config.field_or("transposed_matrices", true)?;
    spec.names = Names {
        roots: &["transformer.", ""],
        embedding: "wte",
        layers: "h",
        norm: "ln_f",
        attention: "attn",
        ..Names::COMMON
    };
    spec.block = Block::pre_norm("ln_1", "ln_2");
    spec.mlp.tensors = MlpTensors::Plain(["c_fc", "c_proj"]);
    let scaled = config.field_or("scale_attn_weights", true)?;
    let by_layer = config.field_or("scale_attn_by_inverse_layer_idx", false)?;
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
