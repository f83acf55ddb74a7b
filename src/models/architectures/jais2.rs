//! Jais 2: Llama with layer norms, biases everywhere and an ungated feed-forward part with squared
//! ReLU.

use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, base, set_biases, set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("Jais2ForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { context: 8192, activation: "relu2", ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    let [attention, mlp] =
        [config.attention_bias, config.mlp_bias].map(|bias| bias.unwrap_or(true));
    set_biases(&mut spec, attention, mlp);
    set_layer_norm(config, &mut spec, "layer_norm_eps", true)?;
    spec.mlp.tensors = MlpTensors::Plain(["up_proj", "down_proj"]);
    Ok(spec)
}
