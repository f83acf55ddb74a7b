//! Beam: norms before and behind both parts of a layer, whose sums weigh hidden states more the deeper they
//! are; norms of query and key heads, and gates of what heads give. Layers with a sliding window are
//! rotated; queries of the others grow with their position. Experts are chosen by sigmoids with a
//! correction bias from groups.

use super::gemma::SANDWICH;
use crate::layers::attention::{GateTensor, HeadGate, NormSpan};
use crate::layers::moe::{ExpertTensors, StackedTensors};
use crate::layers::rope::{QueryScale, RopeSpec};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, RawFields, ResidualScales, Result,
    base, experts, groups, layers_with_experts, read_attention_bias, set_query_key_norm,
    set_sigmoid_routing, set_windows, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("BeamForCausalLM", spec).completed_by(complete)];

const EXPERTS: StackedTensors =
    StackedTensors::new(["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]);

fn complete(fields: &mut RawFields<'_>) {
    fields.default("n_group", 8);
    fields.default("topk_group", 4);
    fields.default("routed_scaling_factor", 2.5);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults =
        Defaults { kv_heads: Some(8), head_dim: Some(128), context: 8192, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    read_attention_bias(config, &mut spec);
    set_query_key_norm(&mut spec, NormSpan::Head);
    spec.block = SANDWICH;
    let layers = config.num_hidden_layers;
    spec.residuals_scaled = Some((0..layers).map(by_depth).collect());
    let full = |layer: usize| (layer + 1).is_multiple_of(6) || layer + 1 == layers;
    let windowed = windowed_layers(config, |layer| !full(layer))?;
    set_windows(config, &mut spec, &windowed, Some(512))?;
    spec.ropes = ropes(config, &defaults)?;
    let gate = HeadGate::sigmoid(GateTensor::Elements("gate_proj"));
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = Some(usize::from(windowed));
        layer.gate = Some(HeadGate { bias: Some("gate_bias"), ..gate });
    }
    let cap = (!config.is_null("final_logit_softcapping")).then_some(30.0);
    spec.logit_softcap = config.positive("final_logit_softcapping")?.or(cap);
    let mut moe = experts(config, &spec, &ExpertFields::COMMON)?;
    moe.experts = ExpertTensors::StackedOrList(EXPERTS, "mlp.experts");
    let listed = layers_with_experts(config)?;
    moe.layers = listed.unwrap_or_else(|| (0..layers).map(|layer| layer >= 3).collect());
    set_sigmoid_routing(config, &mut moe, "mlp.gate.e_score_correction_bias", true)?;
    moe.routing.groups = groups(config, moe.num_experts)?;
    spec.moe = Some(moe);
    Ok(spec)
}

/// The rotary embedding of layers with full attention and of layers with a window; `null` stands for none,
/// and for queries that grow.
fn ropes(config: &HfConfig, defaults: &Defaults) -> Result<Vec<RopeSpec>> {
    let given = config.rope_parameters.as_ref();
    let rotated = [
        given.is_some_and(|kinds| kinds.full_attention.is_some()),
        given.is_none_or(|kinds| kinds.sliding_attention.is_some()),
    ];
    let head_dim = config.head_dim(defaults.head_dim)?;
    let ropes = config.ropes_by_layer_type(head_dim, defaults.rope, defaults.rope.theta)?;
    let growing = QueryScale::Power { unit: 2048.0, exponent: 0.1 };
    let one = |(rope, rotated): (RopeSpec, bool)| {
        if rotated { rope } else { RopeSpec::none(Some(growing)) }
    };
    Ok(ropes.into_iter().zip(rotated).map(one).collect())
}

/// The `n`-th sum, of which the embeddings are the first, has the roots of `(n - 1) / n` and `1 / n` as
/// factors.
fn by_depth(layer: usize) -> ResidualScales {
    #[expect(clippy::cast_precision_loss, reason = "there are few layers")]
    let of_sum = |n: usize| [((n - 1) as f32 / n as f32).sqrt(), 1.0 / (n as f32).sqrt()];
    let first = 2 * (layer + 1);
    ResidualScales { mixer: of_sum(first), mlp: of_sum(first + 1) }
}
