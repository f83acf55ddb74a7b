//! LongCat-Flash: layers in pairs, with scaled latent attention and a dense part each; experts see the input
//! of a pair's first dense part and are added behind its second, so that they can be computed beside it.
//! Some experts give their input. They are chosen by softmax with a correction bias.

use super::deepseek::latent;
use crate::layers::moe::{CorrectionBias, ExpertTensors, Extra};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, RawFields, Result, RopeDefaults,
    bad, experts,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("LongcatFlashForCausalLM", spec).completed_by(complete)];

/// The most experts of a layer that give their input.
const MAX_IDENTITIES: usize = 1 << 12;

/// Its names of common fields; a file counts pairs of layers.
fn complete(fields: &mut RawFields<'_>) {
    fields.default("num_layers", 28);
    fields.set("layers_of_pair", 2);
    fields.product("num_hidden_layers", "num_layers", "layers_of_pair");
    for (name, own, default) in [
        ("intermediate_size", "ffn_hidden_size", 12_288),
        ("moe_intermediate_size", "expert_ffn_hidden_size", 2048),
        ("num_experts_per_tok", "moe_topk", 12),
        ("n_routed_experts", "num_local_experts", 512),
        ("q_lora_rank", "query_rank", 1536),
        ("kv_lora_rank", "kv_rank", 512),
        ("qk_nope_head_dim", "nope_dim", 128),
        ("qk_rope_head_dim", "rope_dim", 64),
        ("v_head_dim", "value_dim", 128),
    ] {
        fields.alias(name, own);
        fields.default(name, default);
    }
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let rope = RopeDefaults { theta: 10_000_000.0, ..Defaults::LLAMA.rope };
    let defaults = Defaults { context: 131_072, norm_eps: 1e-5, rope, ..Defaults::LLAMA };
    let mut spec = latent(config, true, &defaults)?;
    spec.pairs = true;
    spec.names.mlp = "mlps";
    for layer in &mut spec.attention {
        let Some(latent) = &mut layer.latent else { continue };
        let head = latent.nope_dim + latent.rope_dim;
        let given = config.field_or("qk_head_dim", head)?;
        if given != head {
            let bound = format!("must be the sum of both parts' {head} elements");
            return Err(bad("qk_head_dim", given, bound));
        }
        let Some(rank) = latent.query_rank else {
            return Err(bad("q_lora_rank", "null", "must be a number"));
        };
        // Scaled queries give scaled scores.
        layer.params.scale *= scale(config, rank);
        latent.factor = scale(config, latent.kv_rank);
    }
    let mut moe = experts(config, &spec, &ExpertFields::COMMON)?;
    let none = usize::from(!config.is_null("zero_expert_num")) * 256;
    let identities = config.size_or("zero_expert_num", none, 0..=MAX_IDENTITIES)?;
    moe.extra = Extra::Identities(identities);
    moe.layers = (0..config.num_hidden_layers).map(|layer| layer % 2 == 0).collect();
    moe.router = "mlp.router.classifier";
    let name = "mlp.router.e_score_correction_bias";
    moe.correction_bias = Some(CorrectionBias { name, one_row: false });
    moe.experts = ExpertTensors::List("mlp.experts");
    moe.routing.renormalize = false;
    moe.routing.scale = config.number_or("routed_scaling_factor", 6.0)?;
    spec.moe = Some(moe);
    Ok(spec)
}

/// The factor of a vector of low rank: the root of how many times smaller than hidden states it is.
#[expect(clippy::cast_precision_loss, reason = "sizes are below 2^24")]
fn scale(config: &HfConfig, rank: usize) -> f32 {
    (config.hidden_size as f32 / rank as f32).sqrt()
}
