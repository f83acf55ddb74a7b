//! Ling and Ring (BailingMoE), as configured by their own code on the hub: queries, keys and values in
//! one tensor, and experts beside shared ones from some layer on. The first version chooses experts by
//! softmax; the second by sigmoids with a correction bias, from the groups with the two best, and
//! normalizes query and key heads, as does Sarvam.

use crate::layers::attention::{NormSpan, QkvTensors, QueryKeyNorm};
use crate::layers::moe::MoeSpec;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, Names, RawFields, Result,
    RopeDefaults, base, experts, groups, set_sigmoid_routing, shared_experts,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("BailingMoeForCausalLM", spec),
    Architecture::new("BailingMoeV2ForCausalLM", spec_2),
    Architecture::new("SarvamMoEForCausalLM", spec_sarvam).completed_by(complete_sarvam),
];

/// Sarvam's defaults.
fn complete_sarvam(fields: &mut RawFields<'_>) {
    for (name, default) in
        [("head_dim", 64), ("num_shared_experts", 1), ("first_k_dense_replace", 1)]
    {
        fields.default(name, default);
    }
    fields.default("rope_theta", 8_000_000.0);
    fields.default("routed_scaling_factor", 2.5);
}

/// What both versions share but for the choice of experts.
fn first(config: &HfConfig, share: f64) -> Result<(DecoderSpec, MoeSpec)> {
    config.only("norm_head", false)?;
    let rope = RopeDefaults { theta: 600_000.0, share, partial: true };
    let defaults = Defaults { context: 16_384, rope, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.names = Names { embedding: "word_embeddings", attention: "attention", ..Names::COMMON };
    let bias = config.field_or("use_bias", false)?;
    let qkv_bias = config.field_or("use_qkv_bias", false)?;
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Stacked("query_key_value");
        layer.output = "dense";
        layer.qkv_bias = qkv_bias;
        layer.output_bias = bias;
    }
    spec.mlp.bias = bias;
    let mut moe = experts(config, &spec, &ExpertFields::COMMON)?;
    let dense = config.field_or("first_k_dense_replace", 0)?;
    moe.layers = (0..config.num_hidden_layers).map(|layer| layer >= dense).collect();
    moe.shared = shared_experts(&moe, config.field_or("num_shared_experts", 0)?);
    Ok((spec, moe))
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let (spec, mut moe) = first(config, 1.0)?;
    moe.routing.renormalize = config.field_or("norm_topk_prob", true)?;
    Ok(DecoderSpec { moe: Some(moe), ..spec })
}

fn spec_2(config: &HfConfig) -> Result<DecoderSpec> {
    with_sigmoids(config, 0.5)
}

/// Sarvam 30B rotates whole heads.
fn spec_sarvam(config: &HfConfig) -> Result<DecoderSpec> {
    with_sigmoids(config, 1.0)
}

fn with_sigmoids(config: &HfConfig, share: f64) -> Result<DecoderSpec> {
    config.only("moe_router_enable_expert_bias", true)?;
    let (mut spec, mut moe) = first(config, share)?;
    if config.field_or("use_qk_norm", true)? {
        let tensors = ["query_layernorm", "key_layernorm"];
        for layer in &mut spec.attention {
            let norm = QueryKeyNorm { norm: spec.norm, over: NormSpan::Head, tensors };
            layer.query_key_norm = Some(norm);
        }
    }
    set_sigmoid_routing(config, &mut moe, "mlp.gate.expert_bias", true)?;
    moe.routing.groups = groups(config, moe.num_experts)?;
    Ok(DecoderSpec { moe: Some(moe), ..spec })
}
