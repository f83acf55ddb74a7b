//! GLM-4.5 and dots.llm1: experts, from some layer on, that are chosen by sigmoids with a bias for
//! the choice, in groups, beside one that all tokens go through. GLM-4.5 rotates half of each head
//! and may have norms of heads; dots.llm1 has them always, and may have windows from some layer on.

use crate::layers::attention::QueryKeyNorm;
use crate::layers::moe::{ChoiceBias, Score};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases, set_windows, windowed_layers};
use crate::models::common::experts::{FIELDS, experts, groups, shared_experts};
use crate::models::config::HfConfig;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;

/// What `Glm4MoeForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        context: 131_072,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 10_000.0, share: 0.5, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let norm = config.field::<bool>("use_qk_norm")?.unwrap_or(false);
    let norm = norm.then_some(QueryKeyNorm::of_heads(spec.norm));
    for layer in &mut spec.attention {
        layer.qkv_bias = config.attention_bias.unwrap_or(false);
        layer.query_key_norm = norm;
    }
    with_experts(config, &mut spec, 1, true)?;
    Ok(spec)
}

/// What `Dots1ForCausalLM` means.
pub(crate) fn dots(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = base(config, &Defaults { kv_heads: Some(32), ..Defaults::LLAMA })?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(false), false);
    let window = config.sliding_window.unwrap_or(Some(4096));
    let first = config.max_window_layers.unwrap_or(62);
    let windowed = windowed_layers(config, |layer| window.is_some() && layer >= first)?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    for layer in &mut spec.attention {
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
    }
    with_experts(config, &mut spec, 0, false)?;
    Ok(spec)
}

/// Experts from layer `first_k_dense_replace` on.
fn with_experts(
    config: &HfConfig,
    spec: &mut DecoderSpec,
    first: usize,
    renormalize: bool,
) -> Result<(), ModelError> {
    let mut moe = experts(config, spec, &FIELDS)?;
    let first = config.field("first_k_dense_replace")?.unwrap_or(first);
    moe.layers = (0..config.num_hidden_layers).map(|layer| layer >= first).collect();
    moe.choice_bias = Some(ChoiceBias { name: "mlp.gate.e_score_correction_bias", one_row: false });
    moe.routing.score = Score::Sigmoid;
    moe.routing.groups = groups(config, moe.num_experts)?;
    moe.routing.renormalize = config.field("norm_topk_prob")?.unwrap_or(renormalize);
    moe.routing.scale = config.number("routed_scaling_factor")?.unwrap_or(1.0);
    let shared = config.field::<usize>("n_shared_experts")?.unwrap_or(1);
    moe.shared = shared_experts(&moe, shared);
    spec.moe = Some(moe);
    Ok(())
}
