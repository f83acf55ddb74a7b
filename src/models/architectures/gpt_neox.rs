//! GPT-NeoX and Pythia: attention parallel to an ungated feed-forward part, a layer norm for each,
//! biases everywhere, a quarter of each head rotated, and queries, keys and values fused head by
//! head.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, Result, RopeDefaults, base,
    set_biases, set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("GPTNeoXForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let rope = RopeDefaults {
        theta: config.field_or("rotary_emb_base", 10_000.0)?,
        share: config.field_or("rotary_pct", 0.25)?,
        partial: true,
    };
    let defaults = Defaults { activation: "gelu", rope, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(true), true);
    set_layer_norm(config, &mut spec, "layer_norm_eps", true)?;
    let parallel = config.field_or("use_parallel_residual", true)?;
    spec.block = Block { parallel, ..Block::PRE_NORM };
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
