//! Qwen, the first version, as configured by its own code on the hub: Llama with biases of the query,
//! key and value projections, which are fused, under names of its own.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, RawFields, Result, base,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("QWenLMHeadModel", spec).completed_by(complete)];

/// Its names of common fields. Both matrices of a gated part count in its size.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("head_dim", "kv_channels");
    fields.alias("rms_norm_eps", "layer_norm_epsilon");
    fields.alias("rope_theta", "rotary_emb_base");
    // Queries grow beyond this length, if `use_logn_attn` says so: it is the longest.
    fields.replace("max_position_embeddings", "seq_length");
    fields.halve("intermediate_size");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("rotary_pct", 1.0)?;
    let mut spec = base(config, &Defaults { context: 8192, ..Defaults::LLAMA })?;
    spec.names = Names {
        roots: &["transformer."],
        embedding: "wte",
        layers: "h",
        norm: "ln_f",
        attention: "attn",
        ..Names::COMMON
    };
    spec.block = Block::pre_norm("ln_1", "ln_2");
    let bias = !config.field_or("no_bias", true)?;
    spec.mlp.bias = bias;
    spec.mlp.tensors = MlpTensors::Gated(["w2", "w1", "c_proj"]);
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Stacked("c_attn");
        layer.output = "c_proj";
        layer.qkv_bias = true;
        layer.output_bias = bias;
    }
    Ok(spec)
}
