//! Falcon: norms by mean and variance, a feed-forward part without a gate beside attention, and
//! queries, keys and values in one tensor. The first ones share one key head and one norm between
//! both parts; the later ones have groups of heads and perhaps a norm for each part.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases, set_layer_norm};
use crate::models::config::{Fields, HfConfig};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Names};

/// Its own names of common fields.
pub(crate) fn complete(fields: &mut Fields<'_>) {
    fields.same("hidden_size", "n_embed");
    fields.same("num_hidden_layers", "n_layer");
    fields.same("num_attention_heads", "n_head");
    fields.same("num_key_value_heads", "num_kv_heads");
    fields.same("num_key_value_heads", "n_head_kv");
    fields.same("hidden_act", "activation");
    fields.same("intermediate_size", "ffn_hidden_size");
    fields.multiple("intermediate_size", "hidden_size", 4);
}

/// What `FalconForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    config.only("alibi", false)?;
    let defaults = Defaults { tied: true, activation: "gelu", ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    let flag = |name, default| Ok::<_, ModelError>(config.field(name)?.unwrap_or(default));
    let bias = flag("bias", false)?;
    set_biases(&mut spec, bias, bias);
    set_layer_norm(config, &mut spec, "layer_norm_epsilon", true)?;
    spec.names = Names {
        roots: &["transformer."],
        embedding: "word_embeddings",
        layers: "h",
        norm: "ln_f",
        attention: "self_attention",
        ..Names::COMMON
    };
    let (grouped, shared) = (flag("new_decoder_architecture", false)?, flag("multi_query", true)?);
    let norms = config.field::<usize>("num_ln_in_parallel_attn")?;
    spec.block = if grouped && norms != Some(1) {
        let (attention, mlp) = (Some("ln_attn"), Some("ln_mlp"));
        Block { before_attention: attention, before_mlp: mlp, ..Block::PARALLEL }
    } else if grouped || flag("parallel_attn", true)? {
        Block::PARALLEL
    } else {
        Block::PRE_NORM
    };
    spec.mlp.tensors = MlpTensors::Plain(["dense_h_to_4h", "dense_4h_to_h"]);
    for layer in &mut spec.attention {
        layer.output = "dense";
        if !grouped {
            layer.num_kv_heads = if shared { 1 } else { layer.num_heads };
        }
        layer.qkv = QkvTensors::Grouped("query_key_value");
    }
    Ok(spec)
}
