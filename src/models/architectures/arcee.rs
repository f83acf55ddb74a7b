//! Arcee (AFM): Llama with an ungated feed-forward part and squared ReLU.

use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, base, read_biases,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("ArceeForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults =
        Defaults { context: 4096, norm_eps: 1e-5, activation: "relu2", ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    read_biases(config, &mut spec);
    spec.mlp.tensors = MlpTensors::Plain(["up_proj", "down_proj"]);
    Ok(spec)
}
