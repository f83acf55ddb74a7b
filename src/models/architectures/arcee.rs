//! Arcee (AFM): Llama with a feed-forward part without a gate that squares what is above zero.

use crate::layers::mlp::MlpTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases};
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;

/// What `ArceeForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults =
        Defaults { context: 4096, norm_eps: 1e-5, activation: "relu2", ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    let biases = (config.attention_bias.unwrap_or(false), config.mlp_bias.unwrap_or(false));
    set_biases(&mut spec, biases.0, biases.1);
    spec.mlp.tensors = MlpTensors::Plain(["up_proj", "down_proj"]);
    Ok(spec)
}
