//! Nemotron and Minitron: layer norms whose scale is `1 + weight`, an ungated feed-forward part
//! with squared ReLU, and half of each head rotated.

use crate::layers::mlp::MlpTensors;
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, RopeDefaults, base, read_biases,
    set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("NemotronForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        context: 4096,
        activation: "relu2",
        rope: RopeDefaults { theta: 10_000.0, share: 0.5, partial: true },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_biases(config, &mut spec);
    set_layer_norm(config, &mut spec, "norm_eps", true)?;
    spec.norm = NormSpec { scale: NormScale::OnePlusStored, ..spec.norm };
    spec.mlp.tensors = MlpTensors::Plain(["up_proj", "down_proj"]);
    Ok(spec)
}
