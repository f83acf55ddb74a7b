//! Phi-1, Phi-1.5 and Phi-2: attention parallel to an ungated feed-forward part, layer norms,
//! biases everywhere, and half of each head rotated.

use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, Head, HfConfig, Names, Result, RopeDefaults, base,
    set_biases, set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("PhiForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        activation: "gelu_new",
        rope: RopeDefaults { theta: 10_000.0, share: 0.5, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    set_biases(&mut spec, true, true);
    set_layer_norm(config, &mut spec, "layer_norm_eps", true)?;
    spec.block = Block::PARALLEL;
    spec.head = Head::Biased;
    spec.names = Names { norm: "final_layernorm", ..Names::COMMON };
    spec.mlp.tensors = MlpTensors::Plain(["fc1", "fc2"]);
    let norm = config.field_or("qk_layernorm", false)?.then_some(QueryKeyNorm {
        norm: spec.norm,
        over: NormSpan::Head,
        tensors: ["q_layernorm", "k_layernorm"],
    });
    for layer in &mut spec.attention {
        layer.output = "dense";
        layer.query_key_norm = norm;
    }
    Ok(spec)
}
