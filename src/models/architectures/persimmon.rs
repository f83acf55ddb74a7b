//! Persimmon: layer norms, biases everywhere, a fused projection in which each head has its query, key
//! and value together, norms of query and key heads, and an ungated feed-forward part with squared
//! ReLU. Half of each head is rotated.

use crate::layers::attention::{NormSpan, QkvTensors, QueryKeyNorm};
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Names, Result, RopeDefaults, base, set_biases,
    set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("PersimmonForCausalLM", spec)];

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
