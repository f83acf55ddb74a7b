//! GPT-NeoX and Pythia: attention and a feed-forward part without a gate side by side, each with
//! its own norm by mean and variance, biases everywhere, a quarter of each head rotated, and
//! queries, keys and values in one tensor, head by head.

use crate::layers::attention::QkvTensors;
use crate::layers::mlp::MlpTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases, set_layer_norm};
use crate::models::config::HfConfig;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Names};

/// What `GPTNeoXForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let rope = RopeDefaults {
        theta: config.field("rotary_emb_base")?.unwrap_or(10_000.0),
        share: config.field("rotary_pct")?.unwrap_or(0.25),
        partial: true,
    };
    let defaults = Defaults { activation: "gelu", rope, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(true), true);
    set_layer_norm(config, &mut spec, "layer_norm_eps", true)?;
    let parallel = config.field("use_parallel_residual")?.unwrap_or(true);
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
