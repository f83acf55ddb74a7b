//! GPT-NeoX and Pythia: attention parallel to an ungated feed-forward part, a layer norm for each,
//! biases everywhere, a quarter of each head rotated, and queries, keys and values fused head by
//! head. GPT-NeoX Japanese has one after the other, rotates whole heads, and has no biases but in norms
//! and behind the last layer's attention.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, RawFields, Result, RopeDefaults,
    base, set_biases, set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("GPTNeoXForCausalLM", spec),
    Architecture::new("GPTNeoXJapaneseForCausalLM", japanese).completed_by(complete_japanese),
];

/// The size of the feed-forward part is a multiple.
fn complete_japanese(fields: &mut RawFields<'_>) {
    fields.default("intermediate_multiple_size", 4);
    fields.product("intermediate_size", "hidden_size", "intermediate_multiple_size");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = first(config, 0.25, false)?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(true), true);
    let parallel = config.field_or("use_parallel_residual", true)?;
    spec.block = Block { parallel, ..Block::PRE_NORM };
    Ok(spec)
}

fn japanese(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = first(config, 1.0, true)?;
    spec.names.roots = &["gpt_neox_japanese."];
    if let Some(last) = spec.attention.last_mut() {
        last.output_bias_beside = Some("dense_bias");
    }
    Ok(spec)
}

/// The part that both classes share, with the share of a head that is rotated by default.
fn first(config: &HfConfig, share: f64, tied: bool) -> Result<DecoderSpec> {
    let rope = RopeDefaults {
        theta: config.field_or("rotary_emb_base", 10_000.0)?,
        share: config.field_or("rotary_pct", share)?,
        partial: true,
    };
    let defaults = Defaults { activation: "gelu", rope, tied, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    set_layer_norm(config, &mut spec, "layer_norm_eps", true)?;
    spec.names = Names {
        roots: &["gpt_neox."],
        embedding: "embed_in",
        norm: "final_layer_norm",
        head: "embed_out",
        attention: "attention",
        ..Names::COMMON
    };
    spec.mlp.tensors = MlpTensors::Plain(["dense_h_to_4h", "dense_4h_to_h"]);
    for layer in &mut spec.attention {
        layer.num_kv_heads = layer.num_heads;
        layer.qkv = QkvTensors::Grouped("query_key_value");
        layer.output = "dense";
    }
    Ok(spec)
}
