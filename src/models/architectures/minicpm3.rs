//! MiniCPM3: latent attention, and multipliers of the embeddings, of the residuals and of logits.

use super::deepseek::latent;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, RawFields, Result, bad,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("MiniCPM3ForCausalLM", spec).completed_by(complete)];

/// Sizes that the published files leave out. The size of a head is not among them: it says how
/// attention is scaled in other models, and here files may have the rotated part's or the whole's.
fn complete(fields: &mut RawFields<'_>) {
    fields.remove("head_dim");
    fields.quotient("v_head_dim", "hidden_size", "num_attention_heads");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { context: 32_768, norm_eps: 1e-5, tied: true, ..Defaults::LLAMA };
    let mut spec = latent(config, false, &defaults)?;
    spec.embedding_scale = config.number_or("scale_emb", 12.0)?;
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^24")]
    let [layers, hidden] = [config.num_hidden_layers as f32, config.hidden_size as f32];
    if let Some(depth) = given(config, "scale_depth", 1.4)? {
        spec.block.residual_scale = depth / layers.sqrt();
    }
    if let Some(width) = given(config, "dim_model_base", 256.0)? {
        spec.logit_scale = width / hidden;
    }
    if !spec.logit_scale.is_finite() {
        return Err(bad("dim_model_base", spec.logit_scale * hidden, "must be finite"));
    }
    Ok(spec)
}

/// A multiplier's number; `null` turns it off, an absent field doesn't.
fn given(config: &HfConfig, name: &'static str, default: f32) -> Result<Option<f32>> {
    Ok(config.positive(name)?.or((!config.is_null(name)).then_some(default)))
}
