//! XLM-RoBERTa XL: RoBERTa with norms before both parts and one at the end, and none of the embeddings.
//! Goyal et al., 2021.

use super::megatron_bert::{named_as_bert, without_rope};
use super::rope_bert::jina_head;
use crate::models::common::{
    Block, DecoderSpec, EncoderArchitecture, HfConfig, LearnedPositions, Result, bad,
};

pub(super) const FAMILIES: &[EncoderArchitecture] = &[EncoderArchitecture {
    family: "XLMRobertaXL",
    spec,
    complete: None,
    // A class's head is RoBERTa's, which Jina's is too.
    classifier: jina_head,
}];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("type_vocab_size", 1usize)?;
    let mut spec = named_as_bert(config, &["roberta.", ""], 514)?;
    without_rope(config, &mut spec)?;
    spec.names.norm = "encoder.LayerNorm";
    spec.token_types = Some(("embeddings.token_type_embeddings", 1));
    spec.block = Block::pre_norm("attention.self_attn_layer_norm", "LayerNorm");
    // Positions are counted from behind that of padding.
    let first = config.field_or("pad_token_id", 1usize)?.saturating_add(1);
    let rows = spec.max_position_embeddings;
    let left = rows.checked_sub(first).filter(|left| *left > 0);
    spec.max_position_embeddings = left.ok_or_else(|| {
        bad(
            "max_position_embeddings",
            rows,
            format!("must be more than pad_token_id and 1, {first}"),
        )
    })?;
    spec.learned_positions =
        Some(LearnedPositions { name: "embeddings.position_embeddings", first });
    Ok(spec)
}
