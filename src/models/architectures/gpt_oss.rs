//! gpt-oss: biases everywhere, a learned score per head that takes part in attention and stands for
//! nothing, a window in every second layer, and experts in all layers whose gates and ups take
//! turns and are clamped. Published with experts of four bits (MXFP4); else they are turned.

use crate::kernels::pointwise::Gating;
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::{ExpertTensors, StackedTensors};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_windows, windowed_layers};
use crate::models::common::experts::{FIELDS, Fields, experts, stacked};
use crate::models::config::HfConfig;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;

const EXPERTS: StackedTensors = StackedTensors {
    names: ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    turned: true,
    compressed: Some(["mlp.experts.gate_up_proj_blocks", "mlp.experts.down_proj_blocks"]),
    interleaved: true,
    biases: Some(["mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias"]),
};

/// What `GptOssForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(64),
        context: 131_072,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 150_000.0, share: 1.0, partial: false },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let bias = config.attention_bias.unwrap_or(true);
    for layer in &mut spec.attention {
        layer.qkv_bias = bias;
        layer.output_bias = bias;
        layer.sinks = Some("sinks");
    }
    let windowed = windowed_layers(config, |layer| layer % 2 == 0)?;
    set_windows(config, &mut spec, &windowed, Some(128))?;
    let fields = Fields { inner: "intermediate_size", ..FIELDS };
    let mut moe = experts(config, &spec, &fields)?;
    let alpha = config.positive("swiglu_alpha")?.unwrap_or(1.702);
    let limit = config.positive("swiglu_limit")?.unwrap_or(7.0);
    moe.expert = MlpSpec { gating: Some(Gating::Clamped { alpha, limit }), ..moe.expert };
    moe.experts = stacked(config, EXPERTS, "mlp.experts")?;
    moe.expert.bias = matches!(moe.experts, ExpertTensors::List(_));
    moe.router = "mlp.router";
    moe.router_bias = true;
    // Softmax over the chosen ones only, which is softmax over all, divided by their sum.
    moe.routing.renormalize = true;
    spec.moe = Some(moe);
    Ok(spec)
}
