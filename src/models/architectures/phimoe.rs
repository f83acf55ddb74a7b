//! Phi-3.5-MoE: Llama with layer norms, biases of the attention and of the head, and two experts in
//! every layer that a sparse mixer chooses one after the other.

use crate::layers::mlp::MlpTensors;
use crate::layers::moe::{ExpertTensors, Score};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, Head, HfConfig, RawFields, Result,
    RopeDefaults, bad, base, experts, read_attention_bias, set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("PhimoeForCausalLM", spec).completed_by(complete),
    Architecture::new("PhiMoEForCausalLM", spec).completed_by(complete),
];

/// The number of experts, which the first files leave out.
fn complete(fields: &mut RawFields<'_>) {
    fields.default("num_local_experts", 16);
    fields.default("num_experts_per_tok", 2);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        context: 131_072,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 1_000_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_attention_bias(config, &mut spec);
    // The norms' epsilon is that of RMS norms by name alone.
    set_layer_norm(config, &mut spec, "rms_norm_eps", true)?;
    if config.field_or("lm_head_bias", false)? {
        spec.head = Head::Biased;
    }
    for layer in &mut spec.attention {
        layer.params.window = config.sliding_window.flatten();
    }
    let mut moe = experts(config, &spec, &ExpertFields::ALL_SPARSE)?;
    if moe.routing.experts_per_token != 2 {
        let bound = "must be 2: the mixer chooses a first and a second expert";
        return Err(bad("num_experts_per_tok", moe.routing.experts_per_token, bound));
    }
    moe.router = "block_sparse_moe.gate";
    moe.experts = ExpertTensors::List("block_sparse_moe.experts");
    moe.expert.tensors = MlpTensors::Gated(["w1", "w3", "w2"]);
    let jitter = config.positive("router_jitter_noise")?.unwrap_or(0.01);
    moe.routing.score = Score::SparseMixer { jitter };
    moe.routing.renormalize = false;
    spec.moe = Some(moe);
    Ok(spec)
}
