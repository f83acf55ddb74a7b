//! Granite: Llama with multipliers of the embeddings, of attention scores, of the residuals and of
//! logits.

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, base, read_biases,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("GraniteForCausalLM", spec)];

pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    with(config, &Defaults::LLAMA)
}

/// A Granite decoder with these defaults.
pub(super) fn with(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec> {
    let mut spec = base(config, defaults)?;
    read_biases(config, &mut spec);
    spec.embedding_scale = config.number_or("embedding_multiplier", 1.0)?;
    spec.block.residual_scale = config.number_or("residual_multiplier", 1.0)?;
    spec.logit_scale = 1.0 / config.positive("logits_scaling")?.unwrap_or(1.0);
    let scale = config.number_or("attention_multiplier", 1.0)?;
    for layer in &mut spec.attention {
        layer.params.scale = scale;
    }
    Ok(spec)
}
