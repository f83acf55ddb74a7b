//! Megatron-BERT: BERT with norms before both parts and one at the end, and none of the embeddings.
//! Shoeybi et al., 2019.

use serde_json::Value;

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::layers::norm::NormSpec;
use crate::models::classifier::ClassifierSpec;
use crate::models::common::{
    Block, DecoderSpec, Defaults, EncoderArchitecture, HfConfig, LearnedPositions, Names, Result,
    bad, base, remove_rope, set_biases,
};
use crate::models::top::Top;

pub(super) const FAMILIES: &[EncoderArchitecture] =
    &[EncoderArchitecture { family: "MegatronBert", spec, complete: None, classifier: none }];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = named_as_bert(config, &["bert.", ""], 512)?;
    without_rope(config, &mut spec)?;
    spec.names.norm = "encoder.ln";
    spec.block = Block::pre_norm("attention.ln", "ln");
    spec.learned_positions = Some(LearnedPositions::from_zero("embeddings.position_embeddings"));
    Ok(spec)
}

/// Layers under BERT's names, with biases everywhere, an ungated feed-forward part and token types; neither
/// positions nor norms are set.
pub(super) fn named_as_bert(
    config: &HfConfig,
    roots: &'static [&'static str],
    context: usize,
) -> Result<DecoderSpec> {
    config.only("is_decoder", false)?;
    let mut spec = base(config, &Defaults { context, activation: "gelu", ..Defaults::LLAMA })?;
    spec.norm = NormSpec::layer(config.number_or("layer_norm_eps", 1e-12)?, true);
    set_biases(&mut spec, true, true);
    spec.names = Names {
        roots,
        embedding: "embeddings.word_embeddings",
        layers: "encoder.layer",
        norm: "",
        attention: "attention",
        // The projections of a layer are in the layer itself.
        mlp: "",
        ..Names::COMMON
    };
    let types = config.field_or("type_vocab_size", 2usize)?;
    spec.token_types = (types > 0).then_some(("embeddings.token_type_embeddings", types));
    spec.mlp.tensors = MlpTensors::Plain(["intermediate.dense", "output.dense"]);
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Separate(["self.query", "self.key", "self.value"]);
        layer.output = "output.dense";
    }
    Ok(spec)
}

/// Removes the rotary embedding, where positions are told otherwise.
pub(super) fn without_rope(config: &HfConfig, spec: &mut DecoderSpec) -> Result<()> {
    if let Some(kind) = config.field::<String>("position_embedding_type")?
        && kind != "absolute"
    {
        return Err(bad("position_embedding_type", kind, "must be absolute"));
    }
    remove_rope(spec);
    Ok(())
}

/// Pairs of texts would need token types, which are not computed.
pub(super) fn none(_config: &Value, _top: Top) -> Option<ClassifierSpec> {
    None
}
