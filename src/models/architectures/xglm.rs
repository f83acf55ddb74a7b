//! XGLM: OPT's layers with scaled embeddings, and sines and cosines of positions, of which the first two
//! are for padding.

use super::opt;
use crate::layers::norm::NormSpec;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Names, RawFields, Result, Sinusoids, bad, root,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("XGLMForCausalLM", spec).completed_by(complete)];

/// XGLM's names of common fields.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("hidden_size", "d_model");
    fields.alias("num_hidden_layers", "num_layers");
    fields.alias("num_attention_heads", "attention_heads");
    fields.alias("intermediate_size", "ffn_dim");
    fields.alias("hidden_act", "activation_function");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("add_cross_attention", false)?;
    let defaults = Defaults { activation: "gelu", tied: true, ..Defaults::LLAMA };
    let mut spec = opt::ungated(config, &defaults)?;
    spec.norm = NormSpec::layer(1e-5, true);
    spec.names = Names { roots: &["model."], norm: "layer_norm", ..spec.names };
    spec.learned_positions = None;
    let half = config.hidden_size / 2;
    if half < 2 {
        return Err(bad("d_model", config.hidden_size, "must be at least 4"));
    }
    spec.sinusoids = Some(Sinusoids { first: 2, intervals: half - 1 });
    if config.field_or("scale_embedding", true)? {
        spec.embedding_scale = root(config.hidden_size);
    }
    Ok(spec)
}
