//! Arcee's Trinity (AFMoE): norms before and after both parts of a layer, norms of query and key heads,
//! a sigmoid gate of each element that attention gives; layers with a sliding window are rotated, each
//! fourth has neither. From some layer on there are experts with sigmoid scores and a correction
//! bias, beside shared ones.

use crate::layers::attention::{GateTensor, HeadGate, NormSpan};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, ExpertFields, HfConfig, RawFields, Result, base,
    experts, read_attention_bias, root, set_query_key_norm, set_sigmoid_routing, set_windows,
    shared_experts, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("AfmoeForCausalLM", spec).completed_by(complete)];

/// The name of a common field.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("routed_scaling_factor", "route_scale");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults =
        Defaults { head_dim: Some(128), context: 16_384, norm_eps: 1e-5, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    read_attention_bias(config, &mut spec);
    spec.block = Block {
        after_attention: Some("post_attention_layernorm"),
        before_mlp: Some("pre_mlp_layernorm"),
        after_mlp: Some("post_mlp_layernorm"),
        ..Block::PRE_NORM
    };
    if config.field_or("mup_enabled", false)? {
        spec.embedding_scale = root(config.hidden_size);
    }
    set_query_key_norm(&mut spec, NormSpan::Head);
    let every = config.field_or("global_attn_every_n_layers", 4usize)?.max(1);
    let windowed = windowed_layers(config, |layer| (layer + 1) % every != 0)?;
    set_windows(config, &mut spec, &windowed, Some(1024))?;
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = windowed.then_some(0);
        layer.gate = Some(HeadGate::sigmoid(GateTensor::Elements("gate_proj")));
    }
    config.only("score_func", Sigmoid::Sigmoid)?;
    let mut moe = experts(config, &spec, &ExpertFields::COMMON)?;
    let dense = config.field_or("num_dense_layers", 1)?;
    moe.layers = (0..config.num_hidden_layers).map(|layer| layer >= dense).collect();
    moe.router = "mlp.router.gate";
    set_sigmoid_routing(config, &mut moe, "mlp.expert_bias", true)?;
    let shared = config.field_or("num_shared_experts", 2)?;
    moe.shared = shared_experts(&moe, shared);
    spec.moe = Some(moe);
    Ok(spec)
}

/// The only score function, as the published files name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Sigmoid {
    Sigmoid,
}
