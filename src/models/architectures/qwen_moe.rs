//! Qwen2-MoE and Qwen3-MoE: Qwen2 and Qwen3 with experts in some layers. The first also has a
//! shared expert, times a sigmoid gate. Mellum 2 is Qwen3-MoE with kinds of layers by name: with a
//! sliding window, which then has a rotary embedding of its own, and with a dense feed-forward part.

use super::qwen2;
use crate::layers::attention::NormSpan;
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::{MoeSpec, SharedExpert};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, MAX_SIZE, Result, RopeDefaults,
    base, experts, layers_with_experts, read_attention_bias, set_query_key_norm, set_windows,
    windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Qwen2MoeForCausalLM", spec_2),
    Architecture::new("Qwen3MoeForCausalLM", spec_3),
    Architecture::new("MellumForCausalLM", mellum),
];

fn spec_2(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults { kv_heads: Some(16), ..qwen2::DEFAULTS })?;
    let bias = config.field_or("qkv_bias", true)?;
    let windows = qwen2::windows(config)?;
    for (layer, window) in spec.attention.iter_mut().zip(windows) {
        layer.qkv_bias = bias;
        layer.params.window = window;
    }
    let shared = Some(shared_expert(config, &spec)?);
    spec.moe = Some(MoeSpec { shared, ..sparse_experts(config, &spec)? });
    Ok(spec)
}

pub(super) fn spec_3(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults { kv_heads: Some(4), ..qwen2::DEFAULTS })?;
    read_attention_bias(config, &mut spec);
    if config.use_sliding_window.unwrap_or(false) {
        set_windows(config, &mut spec, &vec![true; config.num_hidden_layers], Some(4096))?;
    }
    set_query_key_norm(&mut spec, NormSpan::Head);
    spec.moe = Some(sparse_experts(config, &spec)?);
    Ok(spec)
}

fn mellum(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(4),
        head_dim: Some(128),
        context: 131_072,
        rope: RopeDefaults { theta: 500_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_attention_bias(config, &mut spec);
    set_query_key_norm(&mut spec, NormSpan::Head);
    let windowed = windowed_layers(config, |_| false)?;
    set_windows(config, &mut spec, &windowed, Some(1024))?;
    let head_dim = config.head_dim(defaults.head_dim)?;
    spec.ropes = config.ropes_by_layer_type(head_dim, defaults.rope, 10_000.0)?.to_vec();
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = Some(usize::from(windowed));
    }
    let mut moe = experts(config, &spec, &ExpertFields::COMMON)?;
    moe.layers = layers_with_experts(config)?.unwrap_or_else(|| moe.layers.clone());
    moe.routing.renormalize = config.field_or("norm_topk_prob", true)?;
    spec.moe = Some(moe);
    Ok(spec)
}

/// Experts in every `decoder_sparse_step`-th layer that `mlp_only_layers` doesn't name.
pub(super) fn sparse_experts(config: &HfConfig, spec: &DecoderSpec) -> Result<MoeSpec> {
    let mut moe = experts(config, spec, &ExpertFields::COMMON)?;
    let step = config.field_or("decoder_sparse_step", 1usize)?.max(1);
    let dense = config.field::<Vec<usize>>("mlp_only_layers")?.unwrap_or_default();
    let sparse = |layer: usize| (layer + 1).is_multiple_of(step) && !dense.contains(&layer);
    moe.layers = (0..config.num_hidden_layers).map(sparse).collect();
    Ok(moe)
}

/// The shared expert with its sigmoid gate.
pub(super) fn shared_expert(config: &HfConfig, spec: &DecoderSpec) -> Result<SharedExpert> {
    let intermediate_size = config.size("shared_expert_intermediate_size", MAX_SIZE)?;
    Ok(SharedExpert {
        name: "mlp.shared_expert",
        mlp: MlpSpec { intermediate_size, ..spec.mlp },
        gate: Some("mlp.shared_expert_gate"),
        factor: 1.0,
    })
}
