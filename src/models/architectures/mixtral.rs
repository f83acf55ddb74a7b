//! Mixtral: Mistral, without a window by default, with experts in every layer whose weights sum to
//! one. Published files call an expert's gate, up and down `w1`, `w3` and `w2`.

use crate::layers::mlp::MlpTensors;
use crate::layers::moe::ExpertTensors;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, Result, RopeDefaults, base,
    experts,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("MixtralForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        context: 4096 * 32,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 1_000_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    for layer in &mut spec.attention {
        layer.params.window = config.sliding_window.flatten();
    }
    let mut moe = experts(config, &spec, &ExpertFields::ALL_SPARSE)?;
    moe.router = "block_sparse_moe.gate";
    moe.experts = ExpertTensors::List("block_sparse_moe.experts");
    moe.expert.tensors = MlpTensors::Gated(["w1", "w3", "w2"]);
    moe.routing.renormalize = true;
    spec.moe = Some(moe);
    Ok(spec)
}
