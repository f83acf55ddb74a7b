//! Nemotron and Minitron: norms by mean and variance whose scale is `1 + weight`, a feed-forward
//! part without a gate that squares what is above zero, and half of each head rotated.

use crate::layers::mlp::MlpTensors;
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases, set_layer_norm};
use crate::models::config::HfConfig;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;

/// What `NemotronForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        context: 4096,
        activation: "relu2",
        rope: RopeDefaults { theta: 10_000.0, share: 0.5, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let biases = (config.attention_bias.unwrap_or(false), config.mlp_bias.unwrap_or(false));
    set_biases(&mut spec, biases.0, biases.1);
    set_layer_norm(config, &mut spec, "norm_eps", true)?;
    spec.norm = NormSpec { scale: NormScale::OnePlusStored, ..spec.norm };
    spec.mlp.tensors = MlpTensors::Plain(["up_proj", "down_proj"]);
    Ok(spec)
}
