//! DeepSeek 2 and 3: multi-head latent attention, and experts beside a shared one from some layer
//! on. DeepSeek 2 chooses experts by softmax and groups by their best expert; DeepSeek 3 by
//! sigmoids with a correction bias and groups by their two best.
//!
//! GLM-4.7-Flash is DeepSeek 3 whose file may list which layers have experts; Youtu-LLM is
//! DeepSeek 3 without experts.

use crate::kernels::paged_attention::AttentionParams;
use crate::layers::attention::{AttentionSpec, LatentSpec};
use crate::layers::moe::MoeSpec;
use crate::layers::norm::NormSpec;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, Result, bad, base, check_size,
    experts, groups, layers_with_experts, scale, set_sigmoid_routing, shared_experts,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("DeepseekV2ForCausalLM", spec_2),
    Architecture::new("DeepseekV3ForCausalLM", spec_3),
    Architecture::new("Glm4MoeLiteForCausalLM", spec_glm),
    Architecture::new("YoutuForCausalLM", spec_youtu),
];

/// The most elements of a part of a head, or of a latent vector.
const MAX_PART: usize = 1 << 14;

fn spec_2(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = latent(config, true, &Defaults::LLAMA)?;
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

fn spec_3(config: &HfConfig) -> Result<DecoderSpec> {
    let interleaved = config.field_or("rope_interleave", true)?;
    let mut spec = latent(config, interleaved, &Defaults { context: 4096, ..Defaults::LLAMA })?;
    let Some(mut moe) = routed(config, &spec, 3)? else { return Ok(spec) };
    set_sigmoid_routing(config, &mut moe, "mlp.gate.e_score_correction_bias", true)?;
    moe.routing.groups = groups(config, moe.num_experts)?;
    spec.moe = Some(moe);
    Ok(spec)
}

fn spec_glm(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec_3(config)?;
    if let Some(moe) = &mut spec.moe {
        let listed = layers_with_experts(config)?;
        let first = config.field_or("first_k_dense_replace", 1)?;
        let layers = config.num_hidden_layers;
        moe.layers = listed.unwrap_or_else(|| (0..layers).map(|layer| layer >= first).collect());
    }
    Ok(spec)
}

fn spec_youtu(config: &HfConfig) -> Result<DecoderSpec> {
    let interleaved = config.field_or("rope_interleave", true)?;
    latent(config, interleaved, &Defaults { context: 131_072, tied: true, ..Defaults::LLAMA })
}

/// The decoder without its experts. The `defaults` are not those of the size of heads.
pub(super) fn latent(
    config: &HfConfig,
    interleaved: bool,
    defaults: &Defaults,
) -> Result<DecoderSpec> {
    let rope_dim = config.size("qk_rope_head_dim", MAX_PART)?;
    let mut spec = base(config, &Defaults { head_dim: Some(rope_dim), ..*defaults })?;
    spec.ropes = vec![config.rope(rope_dim, defaults.rope)?];
    let bias = config.attention_bias.unwrap_or(false);
    let query_rank = match config.field::<usize>("q_lora_rank")? {
        None => None,
        Some(rank) => Some(check_size("q_lora_rank", rank, 1..=MAX_PART)?),
    };
    let latent = LatentSpec {
        query_rank,
        kv_rank: config.size("kv_lora_rank", MAX_PART)?,
        nope_dim: config.size("qk_nope_head_dim", MAX_PART)?,
        rope_dim,
        value_dim: config.size("v_head_dim", MAX_PART)?,
        norm: NormSpec::rms(1e-6),
        bias,
    };
    let attention_scale = scale(latent.nope_dim + rope_dim) * config.yarn_attention_scale();
    for layer in &mut spec.attention {
        let params = AttentionParams { scale: attention_scale, ..layer.params };
        *layer = AttentionSpec {
            num_kv_heads: 1,
            head_dim: latent.key_dim(),
            output_bias: bias,
            interleaved_rope: interleaved.then_some(rope_dim),
            params,
            latent: Some(latent),
            ..*layer
        };
    }
    spec.mlp.bias = config.mlp_bias.unwrap_or(false);
    Ok(spec)
}

/// Experts from layer `first_k_dense_replace` on; `None` if the model is dense.
pub(super) fn routed(
    config: &HfConfig,
    spec: &DecoderSpec,
    first: usize,
) -> Result<Option<MoeSpec>> {
    if config.field::<usize>("n_routed_experts")?.is_none() {
        return Ok(None);
    }
    let mut moe = experts(config, spec, &ExpertFields::COMMON)?;
    let first = config.field_or("first_k_dense_replace", first)?;
    let every = config.field_or("moe_layer_freq", 1usize)?.max(1);
    let sparse = |layer: usize| layer >= first && layer.is_multiple_of(every);
    moe.layers = (0..config.num_hidden_layers).map(sparse).collect();
    moe.routing.scale = config.number_or("routed_scaling_factor", 1.0)?;
    let shared = config.field_or("n_shared_experts", 0)?;
    moe.shared = shared_experts(&moe, shared);
    Ok(Some(moe))
}
