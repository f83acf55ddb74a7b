//! DeepSeek 2 and 3: latent attention, whose queries may come through a smaller vector, and experts
//! from some layer on beside one that all tokens go through. DeepSeek 2 chooses experts by softmax,
//! its groups by their best one; DeepSeek 3 by sigmoids with a bias for the choice, its groups by
//! their two best.

use crate::kernels::paged_attention::AttentionParams;
use crate::layers::attention::{AttentionSpec, LatentSpec};
use crate::layers::moe::{ChoiceBias, MoeSpec, Score};
use crate::layers::norm::NormSpec;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, scale};
use crate::models::common::experts::{FIELDS, count, experts, groups, shared_experts};
use crate::models::config::rope::RopeDefaults;
use crate::models::config::{HfConfig, bad};
use crate::models::decoder::DecoderSpec;

/// No part of a head or latent vector has more elements.
const MAX_PART: usize = 1 << 14;

/// What `DeepseekV2ForCausalLM` means.
pub(crate) fn spec_2(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = latent(config, true)?;
    let Some(mut moe) = routed(config, &spec, 0)? else { return Ok(spec) };
    moe.routing.renormalize = false;
    moe.routing.groups = match config.field::<String>("topk_method")?.as_deref() {
        None | Some("greedy") => None,
        Some("group_limited_greedy") => groups(config, moe.num_experts)?,
        Some(other) => {
            return Err(bad("topk_method", other, "supported are greedy, group_limited_greedy"));
        }
    };
    if let Some(groups) = &mut moe.routing.groups {
        groups.best = 1;
    }
    spec.moe = Some(moe);
    Ok(spec)
}

/// What `DeepseekV3ForCausalLM` means.
pub(crate) fn spec_3(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let neighbours = config.field("rope_interleave")?.unwrap_or(true);
    let mut spec = latent(config, neighbours)?;
    spec.max_position_embeddings = config.max_position_embeddings.unwrap_or(4096);
    let Some(mut moe) = routed(config, &spec, 3)? else { return Ok(spec) };
    moe.choice_bias = Some(ChoiceBias { name: "mlp.gate.e_score_correction_bias", one_row: false });
    moe.routing.score = Score::Sigmoid;
    moe.routing.groups = groups(config, moe.num_experts)?;
    moe.routing.renormalize = config.field("norm_topk_prob")?.unwrap_or(true);
    spec.moe = Some(moe);
    Ok(spec)
}

/// The decoder without its experts.
fn latent(config: &HfConfig, neighbours: bool) -> Result<DecoderSpec, ModelError> {
    let rotated = count(config, "qk_rope_head_dim", MAX_PART)?;
    let mut spec = base(config, &Defaults { head_dim: Some(rotated), ..Defaults::LLAMA })?;
    let rope = RopeDefaults { theta: 10_000.0, share: 1.0, partial: false };
    spec.ropes = vec![config.rope(rotated, rope)?];
    let bias = config.attention_bias.unwrap_or(false);
    let query_rank = match config.field::<usize>("q_lora_rank")? {
        None => None,
        Some(_) => Some(count(config, "q_lora_rank", MAX_PART)?),
    };
    let latent = LatentSpec {
        query_rank,
        rank: count(config, "kv_lora_rank", MAX_PART)?,
        plain: count(config, "qk_nope_head_dim", MAX_PART)?,
        rotated,
        value: count(config, "v_head_dim", MAX_PART)?,
        norm: NormSpec::rms(1e-6),
        bias,
    };
    let attention_scale = scale(latent.plain + rotated) * config.attention_stretch();
    for layer in &mut spec.attention {
        let params = AttentionParams { scale: attention_scale, ..layer.params };
        *layer = AttentionSpec {
            num_kv_heads: 1,
            head_dim: latent.key_dim(),
            output_bias: bias,
            rope_neighbours: neighbours.then_some(rotated),
            params,
            latent: Some(latent),
            ..*layer
        };
    }
    spec.mlp.bias = config.mlp_bias.unwrap_or(false);
    Ok(spec)
}

/// Experts from layer `first_k_dense_replace` on, if there are any.
fn routed(
    config: &HfConfig,
    spec: &DecoderSpec,
    first: usize,
) -> Result<Option<MoeSpec>, ModelError> {
    if config.field::<usize>("n_routed_experts")?.is_none() {
        return Ok(None);
    }
    let mut moe = experts(config, spec, &FIELDS)?;
    let first = config.field("first_k_dense_replace")?.unwrap_or(first);
    let every = config.field("moe_layer_freq")?.unwrap_or(1usize).max(1);
    let with = |layer: usize| layer >= first && layer.is_multiple_of(every);
    moe.layers = (0..config.num_hidden_layers).map(with).collect();
    moe.routing.scale = config.number("routed_scaling_factor")?.unwrap_or(1.0);
    let shared = config.field::<usize>("n_shared_experts")?.unwrap_or(0);
    moe.shared = shared_experts(&moe, shared);
    Ok(Some(moe))
}
