//! MPT: ALiBi instead of a rotary embedding, layer norms, no biases, an ungated feed-forward part,
//! and fused queries, keys and values, which may be clipped.

use serde_json::{Map, Value};

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, RawFields, Result, bad, base,
    set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("MptForCausalLM", spec).completed_by(complete)];

/// MPT's names of common fields.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("hidden_size", "d_model");
    fields.alias("num_hidden_layers", "n_layers");
    fields.alias("num_attention_heads", "n_heads");
    fields.alias("max_position_embeddings", "max_seq_len");
    fields.multiple("intermediate_size", "hidden_size", 4);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("no_bias", true)?;
    config.only("expansion_ratio", 4)?;
    let attention = config.field::<Map<String, Value>>("attn_config")?.unwrap_or_default();
    for (name, supported) in [("alibi", true), ("prefix_lm", false), ("qk_ln", false)] {
        if let Some(value) = attention.get(name).filter(|value| **value != Value::Bool(supported)) {
            return Err(bad("attn_config", (name, value), format!("supported is {supported}")));
        }
    }
    let number = |name: &str| match attention.get(name).and_then(Value::as_f64) {
        #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
        Some(value) if value > 0.0 => Ok(Some(value as f32)),
        Some(value) => Err(bad("attn_config", (name, value), "must be a positive number")),
        None => Ok(None),
    };
    let mut spec = base(config, &Defaults { tied: true, activation: "gelu", ..Defaults::LLAMA })?;
    set_layer_norm(config, &mut spec, "layer_norm_epsilon", false)?;
    spec.names = Names {
        roots: &["transformer."],
        embedding: "wte",
        layers: "blocks",
        norm: "norm_f",
        attention: "attn",
        mlp: "ffn",
        ..Names::COMMON
    };
    spec.block = Block::pre_norm("norm_1", "norm_2");
    spec.mlp.tensors = MlpTensors::Plain(["up_proj", "down_proj"]);
    let (clip, scale) = (number("clip_qkv")?, number("softmax_scale")?);
    let alibi = number("alibi_bias_max")?.unwrap_or(8.0);
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Stacked("Wqkv");
        layer.output = "out_proj";
        layer.rope = None;
        layer.alibi = Some(alibi);
        layer.clip = clip;
        layer.params.scale = scale.unwrap_or(layer.params.scale);
    }
    Ok(spec)
}
