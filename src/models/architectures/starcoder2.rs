//! StarCoder2: Llama with layer norms, biases everywhere, an ungated feed-forward part, a tied
//! head, and a sliding window on every layer if the file has one.

use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, base, set_biases, set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("Starcoder2ForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(2),
        context: 4096,
        tied: true,
        activation: "gelu_pytorch_tanh",
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let bias = config.field_or("use_bias", true)?;
    set_biases(&mut spec, bias, bias);
    set_layer_norm(config, &mut spec, "norm_epsilon", true)?;
    spec.mlp.tensors = MlpTensors::Plain(["c_fc", "c_proj"]);
    for layer in &mut spec.attention {
        layer.params.window = config.sliding_window.flatten();
    }
    Ok(spec)
}
