//! BioGPT: OPT with scaled embeddings.

use super::opt;
use crate::layers::norm::NormSpec;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Names, RawFields, Result, root,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("BioGptForCausalLM", spec).completed_by(complete)];

fn complete(fields: &mut RawFields<'_>) {
    fields.default("max_position_embeddings", 1024);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { activation: "gelu", tied: true, ..Defaults::LLAMA };
    let mut spec = opt::ungated(config, &defaults)?;
    // Whatever `layer_norm_eps` says.
    spec.norm = NormSpec::layer(1e-5, true);
    spec.names = Names {
        roots: &["biogpt.", ""],
        norm: "layer_norm",
        head: "output_projection",
        ..spec.names
    };
    if config.field_or("scale_embedding", true)? {
        spec.embedding_scale = root(config.hidden_size);
    }
    Ok(spec)
}
