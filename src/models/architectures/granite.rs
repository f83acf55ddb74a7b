//! Granite: Llama with factors of the embeddings, of scores, of what a layer adds and of logits.

use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases};
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;

/// What `GraniteForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    with(config, &Defaults::LLAMA)
}

/// The same with other defaults.
pub(super) fn with(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec, ModelError> {
    let mut spec = base(config, defaults)?;
    let biases = (config.attention_bias.unwrap_or(false), config.mlp_bias.unwrap_or(false));
    set_biases(&mut spec, biases.0, biases.1);
    spec.embedding_scale = config.number("embedding_multiplier")?.unwrap_or(1.0);
    spec.block.residual_scale = config.number("residual_multiplier")?.unwrap_or(1.0);
    spec.logit_scale = 1.0 / config.positive("logits_scaling")?.unwrap_or(1.0);
    let scale = config.number("attention_multiplier")?.unwrap_or(1.0);
    for layer in &mut spec.attention {
        layer.params.scale = scale;
    }
    Ok(spec)
}
