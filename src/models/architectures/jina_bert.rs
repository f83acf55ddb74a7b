//! Jina's second embeddings: BERT with ALiBi, whose slopes count distances to both sides, and gated
//! feed-forward parts. Günther et al., "Jina Embeddings 2", 2023.

use super::megatron_bert::{named_as_bert, none};
use super::rope_bert::after_parts;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    DecoderSpec, EncoderArchitecture, HfConfig, Names, RawFields, Result, bad, remove_rope,
};

pub(super) const FAMILIES: &[EncoderArchitecture] =
    &[EncoderArchitecture { family: "JinaBert", spec, complete: Some(complete), classifier: none }];

/// A gated part is named after its gate.
fn complete(fields: &mut RawFields<'_>) {
    if fields.is("feed_forward_type", "reglu") {
        fields.set("hidden_act", "relu");
    }
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let kind = config.field_or("feed_forward_type", "original".to_owned())?;
    if !["geglu", "reglu"].contains(&kind.as_str()) {
        return Err(bad("feed_forward_type", kind, "must be geglu or reglu"));
    }
    let positions = config.field_or("position_embedding_type", "absolute".to_owned())?;
    if positions != "alibi" {
        return Err(bad("position_embedding_type", positions, "must be alibi"));
    }
    let mut spec = named_as_bert(config, &["bert.", ""], 8192)?;
    remove_rope(&mut spec);
    spec.names = Names { mlp: "mlp", ..spec.names };
    spec.embedding_norm = Some("embeddings.LayerNorm");
    spec.block = after_parts("attention.output.LayerNorm", "mlp.layernorm");
    spec.mlp.tensors = MlpTensors::GateAndUp(["gated_layers", "wo"]);
    spec.mlp.bias = false;
    spec.mlp.down_bias = true;
    for layer in &mut spec.attention {
        layer.alibi = Some(8.0);
    }
    Ok(spec)
}
