//! GLM-4.5 and dots.llm1: from some layer on, experts with sigmoid scores, a correction bias and
//! group-limited routing, beside shared ones. GLM-4.5 rotates half of each head and may have norms
//! of heads; dots.llm1 always has them, and may have sliding windows from some layer on. Solar Open
//! is GLM-4.5 with whole heads rotated and experts in every layer; Hunyuan 3 is dots.llm1 without
//! windows and groups.

use super::glm::SECTIONS;
use super::qwen_vl::with_axes;
use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::layers::moe::{CorrectionBias, SharedExpert};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, RawFields, Result, RopeDefaults,
    base, experts, groups, layers_with_experts, read_attention_bias, read_biases,
    set_query_key_norm, set_sigmoid_routing, set_windows, shared_experts, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Glm4MoeForCausalLM", spec),
    Architecture::new("Glm4vMoeForConditionalGeneration", spec_4v),
    Architecture::new("Dots1ForCausalLM", dots),
    Architecture::new("SolarOpenForCausalLM", solar).completed_by(complete_solar),
    Architecture::new("HYV3ForCausalLM", hunyuan_3).completed_by(complete_hunyuan_3),
];

/// The size of a dense part, which Solar Open doesn't have.
fn complete_solar(fields: &mut RawFields<'_>) {
    fields.alias("intermediate_size", "moe_intermediate_size");
}

/// Hunyuan 3's names of common fields.
fn complete_hunyuan_3(fields: &mut RawFields<'_>) {
    fields.alias("n_shared_experts", "num_shared_experts");
    fields.alias("routed_scaling_factor", "router_scaling_factor");
    fields.default("routed_scaling_factor", 2.826);
}

/// The decoder of GLM-4.5V and 4.6V.
fn spec_4v(config: &HfConfig) -> Result<DecoderSpec> {
    with_axes(config, spec(config)?, SECTIONS, false)
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        context: 131_072,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 10_000.0, share: 0.5, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let norm = config.field_or("use_qk_norm", false)?;
    let norm = norm.then_some(QueryKeyNorm::of_heads(spec.norm));
    for layer in &mut spec.attention {
        layer.qkv_bias = config.attention_bias.unwrap_or(false);
        layer.query_key_norm = norm;
    }
    with_experts(config, &mut spec, 1, true)?;
    Ok(spec)
}

fn dots(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults { kv_heads: Some(32), ..Defaults::LLAMA })?;
    read_attention_bias(config, &mut spec);
    let window = config.sliding_window.unwrap_or(Some(4096));
    let first = config.max_window_layers.unwrap_or(62);
    let windowed = windowed_layers(config, |layer| window.is_some() && layer >= first)?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    set_query_key_norm(&mut spec, NormSpan::Head);
    with_experts(config, &mut spec, 0, false)?;
    Ok(spec)
}

fn solar(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(128),
        context: 131_072,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 1_000_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    for layer in &mut spec.attention {
        layer.qkv_bias = config.attention_bias.unwrap_or(false);
    }
    config.only("first_k_dense_replace", 0)?;
    with_experts(config, &mut spec, 0, true)?;
    Ok(spec)
}

fn hunyuan_3(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(128),
        context: 131_072,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 11_158_840.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_biases(config, &mut spec);
    set_query_key_norm(&mut spec, NormSpan::Head);
    with_experts(config, &mut spec, 1, true)?;
    if let Some(moe) = &mut spec.moe {
        moe.layers = layers_with_experts(config)?.unwrap_or_else(|| moe.layers.clone());
        moe.router = "mlp.router.gate";
        moe.correction_bias = Some(CorrectionBias { name: "mlp.expert_bias", one_row: false });
        moe.shared = moe.shared.map(|shared| SharedExpert { name: "mlp.shared_mlp", ..shared });
    }
    Ok(spec)
}

/// Experts from layer `first_k_dense_replace` on.
fn with_experts(
    config: &HfConfig,
    spec: &mut DecoderSpec,
    first: usize,
    renormalize: bool,
) -> Result<()> {
    let mut moe = experts(config, spec, &ExpertFields::COMMON)?;
    let first = config.field_or("first_k_dense_replace", first)?;
    moe.layers = (0..config.num_hidden_layers).map(|layer| layer >= first).collect();
    set_sigmoid_routing(config, &mut moe, "mlp.gate.e_score_correction_bias", renormalize)?;
    moe.routing.groups = groups(config, moe.num_experts)?;
    let shared = config.field_or("n_shared_experts", 1)?;
    moe.shared = shared_experts(&moe, shared);
    spec.moe = Some(moe);
    Ok(())
}
