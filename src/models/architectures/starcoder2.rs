//! StarCoder2: Llama with norms by mean and variance, biases everywhere, a feed-forward part
//! without a gate, a tied head, and a window on every layer if the file says so.

use crate::layers::mlp::MlpTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases, set_layer_norm};
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;

/// What `Starcoder2ForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        kv_heads: Some(2),
        context: 4096,
        tied: true,
        activation: "gelu_pytorch_tanh",
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let bias = config.field::<bool>("use_bias")?.unwrap_or(true);
    set_biases(&mut spec, bias, bias);
    set_layer_norm(config, &mut spec, "norm_epsilon", true)?;
    spec.mlp.tensors = MlpTensors::Plain(["c_fc", "c_proj"]);
    for layer in &mut spec.attention {
        layer.params.window = config.sliding_window.flatten();
    }
    Ok(spec)
}
