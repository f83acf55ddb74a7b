//! Persimmon: layer norms, biases everywhere, a fused projection in which each head has its query, key
//! and value together, norms of query and key heads, and an ungated feed-forward part with squared
//! ReLU. Half of each head is rotated.

use crate::layers::attention::{NormSpan, QkvTensors, QueryKeyNorm};
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Names, Result, RopeDefaults, base, set_biases,
    set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("PersimmonForCausalLM", spec), Architecture::new("FuyuForCausalLM", fuyu)];

/// The language model of Fuyu, which sees pictures through one linear layer.
fn fuyu(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec(config)?;
    spec.names.roots = &["model.language_model.", "language_model.model.", "language_model."];
    Ok(spec)
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        context: 16_384,
        activation: "relu2",
        rope: RopeDefaults { theta: 25_000.0, share: 0.5, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    set_biases(&mut spec, true, true);
    set_layer_norm(config, &mut spec, "layer_norm_eps", true)?;
    spec.names = Names { norm: "final_layernorm", ..Names::COMMON };
    spec.mlp.tensors = MlpTensors::Plain(["dense_h_to_4h", "dense_4h_to_h"]);
    let norm = config.field_or("qk_layernorm", true)?.then_some(QueryKeyNorm {
        norm: spec.norm,
        over: NormSpan::Head,
        tensors: ["q_layernorm", "k_layernorm"],
    });
    for layer in &mut spec.attention {
        layer.num_kv_heads = layer.num_heads;
        layer.qkv = QkvTensors::Grouped("query_key_value");
        layer.output = "dense";
        layer.query_key_norm = norm;
    }
    Ok(spec)
}
