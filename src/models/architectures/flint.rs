//! Flint: Qwen3-MoE with an attention sink of each head; layers with a sliding window are rotated, the
//! others are not. Experts are weighted by sigmoids, beside a shared one.

use super::qwen_moe;
use crate::layers::attention::NormSpan;
use crate::layers::moe::{MoeSpec, Score, SharedExpert};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, base, read_attention_bias,
    set_query_key_norm, set_windows, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("FlintForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults =
        Defaults { kv_heads: Some(4), head_dim: Some(128), context: 262_144, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    read_attention_bias(config, &mut spec);
    set_query_key_norm(&mut spec, NormSpan::Head);
    let last = config.num_hidden_layers - 1;
    let full = |layer| layer < 2 || layer % 4 == 1 || layer == last;
    let windowed = windowed_layers(config, |layer| !full(layer))?;
    set_windows(config, &mut spec, &windowed, Some(513))?;
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = windowed.then_some(0);
        layer.sinks = Some("softmax_offset");
    }
    let mut moe = qwen_moe::sparse_experts(config, &spec)?;
    if config.field::<Vec<usize>>("mlp_only_layers")?.is_none() {
        moe.layers = (0..config.num_hidden_layers).map(|layer| layer > 1).collect();
    }
    moe.routing.score = Score::Sigmoid;
    moe.routing.renormalize = config.field_or("norm_topk_prob", true)?;
    let shared = SharedExpert { gate: None, ..qwen_moe::shared_expert(config, &spec)? };
    spec.moe = Some(MoeSpec { shared: Some(shared), ..moe });
    Ok(spec)
}
