//! XLM-RoBERTa XL: RoBERTa with norms before both parts and one at the end, and none of the embeddings.
//! Goyal et al., 2021.

use super::megatron_bert::{named_as_bert, without_rope};
use super::rope_bert::jina_head;
use crate::models::common::{
    Block, DecoderSpec, EncoderArchitecture, HfConfig, Result, set_positions_behind_padding,
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
    set_positions_behind_padding(config, "embeddings.position_embeddings", &mut spec)?;
    Ok(spec)
}
