//! MPT: scores that fall with the distance instead of a rotation, norms by mean and variance, no
//! biases, a feed-forward part without a gate, and queries, keys and values in one tensor, perhaps
//! bounded.

use serde_json::{Map, Value};

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_layer_norm};
use crate::models::config::{Fields, HfConfig, bad};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Names};

/// Its own names of common fields.
pub(crate) fn complete(fields: &mut Fields<'_>) {
    fields.same("hidden_size", "d_model");
    fields.same("num_hidden_layers", "n_layers");
    fields.same("num_attention_heads", "n_heads");
    fields.same("max_position_embeddings", "max_seq_len");
    fields.multiple("intermediate_size", "hidden_size", 4);
}

/// What `MptForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
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
    spec.block =
        Block { before_attention: Some("norm_1"), before_mlp: Some("norm_2"), ..Block::PRE_NORM };
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
