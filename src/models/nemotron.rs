//! Nemotron and Minitron: norms by mean and variance whose scale is `1 + weight`, a feed-forward
//! part without a gate that squares what is above zero, and half of each head rotated.

use super::ModelError;
use super::base::{Defaults, base, set_biases, set_layer_norm};
use super::config::HfConfig;
use super::config::rope::RopeDefaults;
use super::decoder::DecoderSpec;
use crate::layers::mlp::MlpTensors;
use crate::layers::norm::{NormScale, NormSpec};

/// What `NemotronForCausalLM` means.
pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
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
