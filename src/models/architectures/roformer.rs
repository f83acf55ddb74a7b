//! RoFormer: BERT with a rotation of neighbouring elements in place of learned positions. Su et al., "RoFormer:
//! Enhanced Transformer with Rotary Position Embedding", 2021. Its decoders are in `bert_decoder`.

use super::bert_decoder::only_whole_embeddings;
use super::megatron_bert::{named_as_bert, none};
use super::rope_bert::after_parts;
use crate::models::common::{
    DecoderSpec, EncoderArchitecture, HfConfig, Result, set_interleaved_rope,
};

pub(super) const FAMILIES: &[EncoderArchitecture] =
    &[EncoderArchitecture { family: "RoFormer", spec, complete: None, classifier: none }];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    only_whole_embeddings(config, config.hidden_size)?;
    config.only("rotary_value", false)?;
    let mut spec = named_as_bert(config, &["roformer.", ""], 1536)?;
    set_interleaved_rope(&mut spec);
    spec.embedding_norm = Some("embeddings.LayerNorm");
    spec.block = after_parts("attention.output.LayerNorm", "output.LayerNorm");
    Ok(spec)
}
