//! Phi-3, Phi-3.5 and Phi-4: Llama with fused queries, keys and values, gate and up in one tensor,
//! a sliding window on every layer if the file has one, and LongRoPE.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, RopeDefaults, base,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Phi3ForCausalLM", spec),
    Architecture::new("Phi4MultimodalForCausalLM", spec),
];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("attention_bias", false)?;
    let rope = RopeDefaults { partial: true, ..Defaults::LLAMA.rope };
    let defaults = Defaults { context: 4096, norm_eps: 1e-5, rope, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Stacked("qkv_proj");
        layer.params.window = config.sliding_window.flatten();
    }
    spec.mlp.tensors = MlpTensors::GateAndUp(["gate_up_proj", "down_proj"]);
    Ok(spec)
}
