//! JetMoE: a mixture of attention heads, whose experts share keys and values, and experts in every layer,
//! both chosen by the softmax of the best scores alone and with a bias of what they give.

use crate::layers::attention::RoutedHeads;
use crate::layers::moe::{ExpertTensors, StackedTensors};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, Names, RawFields, Result, bad,
    base, experts,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("JetMoeForCausalLM", spec).completed_by(complete)];

const EXPERTS: StackedTensors =
    StackedTensors::new(["mlp.input_linear.weight", "mlp.output_linear.weight"]);
/// The epsilon of norms in layers, which no field sets.
const EPS: f64 = 1e-6;

/// JetMoE's names of common fields, and its defaults.
fn complete(fields: &mut RawFields<'_>) {
    fields.replace("head_dim", "kv_channels");
    fields.alias("hidden_act", "activation_function");
    let defaults = [
        ("head_dim", 128),
        ("num_key_value_heads", 16),
        ("num_experts_per_tok", 2),
        ("num_local_experts", 8),
    ];
    for (name, default) in defaults {
        fields.default(name, default);
    }
    fields.product("num_attention_heads", "num_key_value_heads", "num_experts_per_tok");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    if let Some(eps) = config.rms_norm_eps.filter(|eps| (eps - EPS).abs() > 1e-12) {
        return Err(bad("rms_norm_eps", eps, format!("supported is {EPS}")));
    }
    let defaults = Defaults { context: 4096, norm_eps: EPS, tied: true, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.names = Names { attention: "self_attention", ..Names::COMMON };
    let mut moe = experts(config, &spec, &ExpertFields::ALL_SPARSE)?;
    moe.experts = ExpertTensors::Stacked(EXPERTS);
    moe.router = "mlp.router.layer";
    moe.routing.renormalize = true;
    moe.output_bias = Some("mlp.bias");
    let routed = RoutedHeads { experts: moe.num_experts, routing: moe.routing };
    for layer in &mut spec.attention {
        layer.routed = Some(routed);
    }
    spec.moe = Some(moe);
    Ok(spec)
}
