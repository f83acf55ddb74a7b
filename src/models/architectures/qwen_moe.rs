//! Qwen2-MoE and Qwen3-MoE: Qwen2 and Qwen3 with experts in some layers. The first also has an
//! expert that all tokens go through, times the sigmoid of a number of the token's.

use super::qwen2;
use crate::layers::attention::QueryKeyNorm;
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::SharedExpert;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases, set_windows};
use crate::models::common::experts::{FIELDS, count, experts};
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;

/// What `Qwen2MoeForCausalLM` means.
pub(crate) fn spec_2(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = base(config, &Defaults { kv_heads: Some(16), ..qwen2::DEFAULTS })?;
    let bias = config.field("qkv_bias")?.unwrap_or(true);
    let windows = qwen2::windows(config)?;
    for (layer, window) in spec.attention.iter_mut().zip(windows) {
        layer.qkv_bias = bias;
        layer.params.window = window;
    }
    set_experts(config, &mut spec)?;
    let shared = shared_expert(config, &spec)?;
    if let Some(moe) = &mut spec.moe {
        moe.shared = Some(shared);
    }
    Ok(spec)
}

/// What `Qwen3MoeForCausalLM` means.
pub(crate) fn spec_3(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = base(config, &Defaults { kv_heads: Some(4), ..qwen2::DEFAULTS })?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(false), false);
    if config.use_sliding_window.unwrap_or(false) {
        set_windows(config, &mut spec, &vec![true; config.num_hidden_layers], Some(4096))?;
    }
    for layer in &mut spec.attention {
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
    }
    set_experts(config, &mut spec)?;
    Ok(spec)
}

/// Experts in every `decoder_sparse_step`-th layer that `mlp_only_layers` doesn't name.
pub(super) fn set_experts(config: &HfConfig, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    let mut moe = experts(config, spec, &FIELDS)?;
    let step = config.field::<usize>("decoder_sparse_step")?.unwrap_or(1).max(1);
    let dense = config.field::<Vec<usize>>("mlp_only_layers")?.unwrap_or_default();
    let sparse = |layer: usize| (layer + 1).is_multiple_of(step) && !dense.contains(&layer);
    moe.layers = (0..config.num_hidden_layers).map(sparse).collect();
    spec.moe = Some(moe);
    Ok(())
}

/// What all tokens go through, times the sigmoid of a number of the token's.
pub(super) fn shared_expert(
    config: &HfConfig,
    spec: &DecoderSpec,
) -> Result<SharedExpert, ModelError> {
    let intermediate_size = count(config, "shared_expert_intermediate_size", 1 << 28)?;
    Ok(SharedExpert {
        name: "mlp.shared_expert",
        mlp: MlpSpec { intermediate_size, ..spec.mlp },
        gate: Some("mlp.shared_expert_gate"),
    })
}
