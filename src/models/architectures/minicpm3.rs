//! MiniCPM3: latent attention, and multipliers of the embeddings, of the residuals and of logits.

use super::deepseek::latent;
use super::minicpm::{self, Multipliers};
use crate::models::common::{Architecture, DecoderSpec, Defaults, HfConfig, RawFields, Result};

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
    let multipliers = Multipliers { embedding: 12.0, depth: 1.4, width: 256.0 };
    minicpm::multiply(config, &mut spec, &multipliers)?;
    Ok(spec)
}
