//! The first GPT: learned positions, and layer norms of the sums of hidden states and each part's output
//! instead of norms of inputs, so there is none behind the last layer either.

use super::gpt2;
use crate::models::common::{
    Architecture, Block, DecoderSpec, HfConfig, LearnedPositions, Names, RawFields, Result,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("OpenAIGPTLMHeadModel", spec).completed_by(complete)];

fn complete(fields: &mut RawFields<'_>) {
    // Its "gelu" is the approximation that later models call "gelu_new".
    if !fields.is("afn", "gelu") {
        fields.alias("hidden_act", "afn");
    }
    fields.default("n_positions", 512);
    gpt2::complete(fields);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = gpt2::spec(config)?;
    spec.learned_positions = Some(LearnedPositions::from_zero("positions_embed"));
    spec.names = Names { embedding: "tokens_embed", norm: "", ..spec.names };
    spec.block = Block {
        before_attention: None,
        after_attention: Some("ln_1"),
        before_mlp: None,
        after_mlp: Some("ln_2"),
        normalizes_sums: true,
        ..Block::PRE_NORM
    };
    Ok(spec)
}
