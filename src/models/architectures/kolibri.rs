//! Kolibri: norms before and behind both parts of a layer, norms of query and key heads; layers with a
//! sliding window are rotated, the others are not. Every layer has experts, chosen by their logits
//! with a correction bias and weighted by sigmoids, beside a shared one.

use crate::layers::attention::NormSpan;
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::{CorrectionBias, Score, SharedExpert};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, ExpertFields, HfConfig, MAX_SIZE, RawFields,
    Result, base, experts, set_query_key_norm, set_windows, shared_experts, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("Kolibri1ForCausalLM", spec).completed_by(complete)];

/// There is no dense part whose size the file could say.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("intermediate_size", "moe_intermediate_size");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults =
        Defaults { kv_heads: Some(4), head_dim: Some(128), context: 262_144, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.block = Block {
        after_attention: Some("post_attn_norm"),
        after_mlp: Some("post_ffn_norm"),
        ..Block::PRE_NORM
    };
    set_query_key_norm(&mut spec, NormSpan::Head);
    let windowed = windowed_layers(config, |layer| (layer + 1) % 5 != 0)?;
    set_windows(config, &mut spec, &windowed, Some(513))?;
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = windowed.then_some(0);
    }
    let mut moe = experts(config, &spec, &ExpertFields::COMMON)?;
    let name = "moe.router.expert_bias";
    moe.correction_bias = Some(CorrectionBias { name, one_row: false });
    moe.routing.score = Score::SigmoidOfChosen;
    moe.routing.renormalize = config.field_or("norm_topk_prob", false)?;
    let inner = config.size_or("shared_expert_intermediate_size", 512, 1..=MAX_SIZE)?;
    let shared = shared_experts(&moe, 1);
    let mlp = MlpSpec { intermediate_size: inner, ..moe.expert };
    moe.shared = shared.map(|shared| SharedExpert { mlp, ..shared });
    spec.moe = Some(moe);
    Ok(spec)
}
