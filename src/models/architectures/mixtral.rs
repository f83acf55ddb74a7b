//! Mixtral: Mistral, without a window by default, with experts in every layer whose weights add up
//! to one. Published files call gate, up and down of an expert `w1`, `w3` and `w2`.

use crate::layers::mlp::MlpTensors;
use crate::layers::moe::ExpertTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base};
use crate::models::common::experts::{FIELDS, Fields, experts};
use crate::models::config::HfConfig;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;

/// What `MixtralForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
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
    let fields = Fields { inner: "intermediate_size", ..FIELDS };
    let mut moe = experts(config, &spec, &fields)?;
    moe.router = "block_sparse_moe.gate";
    moe.experts = ExpertTensors::List("block_sparse_moe.experts");
    moe.expert.tensors = MlpTensors::Gated(["w1", "w3", "w2"]);
    moe.routing.renormalize = true;
    spec.moe = Some(moe);
    Ok(spec)
}
