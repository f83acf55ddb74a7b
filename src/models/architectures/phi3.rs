//! Phi-3, Phi-3.5 and Phi-4: Llama with the query, key and value projections in one tensor, gate
//! and up in another, a window on every layer if the file says so, and longrope.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base};
use crate::models::config::HfConfig;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;

/// What `Phi3ForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
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
