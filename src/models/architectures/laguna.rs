//! Laguna: norms of query and key heads, a softplus gate of each head or each element that attention
//! gives, as many query heads in a layer as its file says, and rotary embeddings that differ between
//! layers with a sliding window and others. From some layer on there are experts with sigmoid scores
//! and a correction bias, beside a shared one.

use serde::Deserialize;

use crate::layers::attention::{GateTensor, HeadGate, NormSpan};
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::{MoeSpec, SharedExpert};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, MAX_SIZE, RawFields, Result,
    RopeDefaults, bad, base, experts, layers_with_experts, read_attention_bias, set_query_key_norm,
    set_sigmoid_routing, set_windows, shared_experts, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("LagunaForCausalLM", spec).completed_by(complete)];

/// The name of a common field.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("routed_scaling_factor", "moe_routed_scaling_factor");
}

const ROPE: RopeDefaults = RopeDefaults { theta: 500_000.0, share: 0.5, partial: true };

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(128),
        context: 131_072,
        rope: ROPE,
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_attention_bias(config, &mut spec);
    set_query_key_norm(&mut spec, NormSpan::Head);
    let windowed = windowed_layers(config, |_| false)?;
    set_windows(config, &mut spec, &windowed, Some(512))?;
    let head_dim = config.head_dim(defaults.head_dim)?;
    spec.ropes = config.ropes_by_layer_type(head_dim, ROPE, 10_000.0)?.to_vec();
    let gate = HeadGate { tensor: gate(config)?, softplus: true, bias: None };
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = Some(usize::from(windowed));
        layer.gate = Some(gate);
    }
    set_heads(config, &mut spec)?;
    spec.moe = Some(with_experts(config, &spec)?);
    Ok(spec)
}

/// What has a gate.
fn gate(config: &HfConfig) -> Result<GateTensor> {
    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    enum Gating {
        Is(bool),
        Per(String),
    }
    let name = "gating";
    match config.field::<Gating>(name)? {
        None | Some(Gating::Is(true)) => Ok(GateTensor::Heads("g_proj")),
        Some(Gating::Per(word)) if word == "per-head" => Ok(GateTensor::Heads("g_proj")),
        Some(Gating::Per(word)) if word == "per-element" => Ok(GateTensor::Elements("g_proj")),
        Some(other) => Err(bad(name, other, "supported are true, per-head and per-element")),
    }
}

/// Sets the number of query heads of each layer, if the file has one for each.
fn set_heads(config: &HfConfig, spec: &mut DecoderSpec) -> Result<()> {
    let name = "num_attention_heads_per_layer";
    let Some(counts) = config.field::<Vec<usize>>(name)? else { return Ok(()) };
    if counts.len() != config.num_hidden_layers {
        let bound = format!("must have a number for each of {} layers", config.num_hidden_layers);
        return Err(bad(name, counts.len(), bound));
    }
    for (layer, count) in spec.attention.iter_mut().zip(counts) {
        if count == 0 || count > MAX_SIZE || !count.is_multiple_of(layer.num_kv_heads) {
            let bound =
                format!("must be multiples of `num_key_value_heads` = {}", layer.num_kv_heads);
            return Err(bad(name, count, bound));
        }
        layer.num_heads = count;
    }
    Ok(())
}

fn with_experts(config: &HfConfig, spec: &DecoderSpec) -> Result<MoeSpec> {
    config.only("moe_apply_router_weight_on_input", false)?;
    config.only("moe_router_logit_softcapping", 0.0)?;
    let mut moe = experts(config, spec, &ExpertFields::COMMON)?;
    let listed = layers_with_experts(config)?;
    let layers = config.num_hidden_layers;
    moe.layers = listed.unwrap_or_else(|| (0..layers).map(|layer| layer > 0).collect());
    set_sigmoid_routing(config, &mut moe, "mlp.experts.e_score_correction_bias", true)?;
    moe.routing.renormalize = true;
    let inner = config.size_or("shared_expert_intermediate_size", 512, 1..=MAX_SIZE)?;
    let shared = shared_experts(&moe, 1);
    let mlp = MlpSpec { intermediate_size: inner, ..moe.expert };
    let name = "mlp.shared_expert";
    moe.shared = shared.map(|shared| SharedExpert { name, mlp, ..shared });
    Ok(moe)
}
