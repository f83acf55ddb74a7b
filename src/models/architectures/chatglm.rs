//! ChatGLM 2 and 3 and GLM-4 (9B), as configured by their own code on the hub: GLM under other names,
//! with queries, keys and values in one tensor.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Names, RawFields, Result, RopeDefaults, bad,
    base,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("ChatGLMModel", spec).completed_by(complete),
    Architecture::new("ChatGLMForConditionalGeneration", spec).completed_by(complete),
];

/// Their names of common fields.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("vocab_size", "padded_vocab_size");
    fields.alias("num_hidden_layers", "num_layers");
    fields.alias("intermediate_size", "ffn_hidden_size");
    fields.alias("head_dim", "kv_channels");
    fields.alias("rms_norm_eps", "layernorm_epsilon");
    fields.alias("max_position_embeddings", "seq_length");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("rmsnorm", true)?;
    config.only("post_layer_norm", true)?;
    config.only("apply_residual_connection_post_layernorm", false)?;
    config.only("original_rope", true)?;
    let stretched = config.positive("rope_ratio")?.unwrap_or(1.0);
    let theta = 10_000.0 * f64::from(stretched);
    let defaults = Defaults {
        norm_eps: 1e-5,
        rope: RopeDefaults { theta, share: 0.5, partial: false },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    spec.names = Names {
        roots: &["transformer."],
        embedding: "embedding.word_embeddings",
        layers: "encoder.layers",
        norm: "encoder.final_layernorm",
        head: "transformer.output_layer",
        attention: "self_attention",
        ..Names::COMMON
    };
    let bias = config.field_or("add_bias_linear", false)?;
    spec.mlp.bias = bias;
    spec.mlp.tensors = MlpTensors::GateAndUp(["dense_h_to_4h", "dense_4h_to_h"]);
    let shared = config.field_or("multi_query_attention", false)?;
    let groups = config.field_or("multi_query_group_num", 1usize)?;
    let rotated = spec.ropes.first().map(|rope| rope.rotary_dim);
    for layer in &mut spec.attention {
        if shared {
            if groups == 0 || !layer.num_heads.is_multiple_of(groups) {
                let bound = format!("must divide `num_attention_heads` = {}", layer.num_heads);
                return Err(bad("multi_query_group_num", groups, bound));
            }
            layer.num_kv_heads = groups;
        }
        layer.qkv = QkvTensors::Stacked("query_key_value");
        layer.output = "dense";
        layer.qkv_bias = bias || config.field_or("add_qkv_bias", false)?;
        layer.output_bias = bias;
        layer.interleaved_rope = rotated;
    }
    Ok(spec)
}
