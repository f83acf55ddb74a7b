//! MiniCPM, as configured by its own code on the hub: Llama with multipliers of the embeddings, of the
//! residuals and of logits.

use crate::models::common::{Architecture, DecoderSpec, Defaults, HfConfig, Result, bad, base};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("MiniCPMForCausalLM", spec)];

/// Defaults of the multipliers.
pub(super) struct Multipliers {
    /// Of the embeddings.
    pub(super) embedding: f32,
    /// Of the residuals, times the root of the number of layers.
    pub(super) depth: f32,
    /// The elements of a hidden state of a model whose logits are not scaled.
    pub(super) width: f32,
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("num_experts", 0usize)?;
    let defaults = Defaults { context: 2048, tied: true, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    multiply(config, &mut spec, &Multipliers { embedding: 1.0, depth: 1.0, width: 1.0 })?;
    Ok(spec)
}

/// Sets the multipliers of the file, or these.
pub(super) fn multiply(
    config: &HfConfig,
    spec: &mut DecoderSpec,
    defaults: &Multipliers,
) -> Result<()> {
    spec.embedding_scale = config.number_or("scale_emb", defaults.embedding)?;
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^24")]
    let [layers, hidden] = [config.num_hidden_layers as f32, config.hidden_size as f32];
    if let Some(depth) = given(config, "scale_depth", defaults.depth)? {
        spec.block.residual_scale = depth / layers.sqrt();
    }
    if let Some(width) = given(config, "dim_model_base", defaults.width)? {
        spec.logit_scale = width / hidden;
    }
    if !spec.logit_scale.is_finite() {
        return Err(bad("dim_model_base", spec.logit_scale * hidden, "must be finite"));
    }
    Ok(())
}

/// A multiplier's number; `null` turns it off, an absent field doesn't.
fn given(config: &HfConfig, name: &'static str, default: f32) -> Result<Option<f32>> {
    Ok(config.positive(name)?.or((!config.is_null(name)).then_some(default)))
}
