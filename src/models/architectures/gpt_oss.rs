//! gpt-oss: biases everywhere, an attention sink per head, sliding windows in every second layer,
//! and experts in all layers with interleaved gates and ups and clamped SwiGLU. Published with
//! experts in MXFP4; other checkpoints store them transposed.

use crate::kernels::pointwise::Gating;
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::{ExpertTensors, StackedTensors};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, Result, RopeDefaults, base,
    experts, set_windows, stacked, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("GptOssForCausalLM", spec)];

const EXPERTS: StackedTensors = StackedTensors {
    transposed: true,
    compressed: Some(["mlp.experts.gate_up_proj_blocks", "mlp.experts.down_proj_blocks"]),
    interleaved: true,
    biases: Some(["mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias"]),
    ..StackedTensors::new(["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])
};

pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec> {
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
    let mut moe = experts(config, &spec, &ExpertFields::ALL_SPARSE)?;
    let alpha = config.positive("swiglu_alpha")?.unwrap_or(1.702);
    let limit = config.positive("swiglu_limit")?.unwrap_or(7.0);
    moe.expert = MlpSpec { gating: Some(Gating::Clamped { alpha, limit }), ..moe.expert };
    moe.experts = stacked(config, EXPERTS, "mlp.experts")?;
    moe.expert.bias = matches!(moe.experts, ExpertTensors::List(_));
    moe.router = "mlp.router";
    moe.router_bias = true;
    // Softmax over the chosen experts is softmax over all, divided by the sum of the chosen.
    moe.routing.renormalize = true;
    spec.moe = Some(moe);
    Ok(spec)
}
