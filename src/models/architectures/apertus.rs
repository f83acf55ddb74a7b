//! Apertus: Llama with norms of query and key heads, and a feed-forward part without a gate whose
//! activation has learned numbers (Huang and Schlag, "Deriving Activation Functions Using
//! Integration", 2024).

use crate::layers::attention::QueryKeyNorm;
use crate::layers::mlp::MlpTensors;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases};
use crate::models::config::HfConfig;
use crate::models::config::bad;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::Block;

/// What `ApertusForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let activation = config.hidden_act.as_deref().unwrap_or("xielu");
    if activation != "xielu" {
        return Err(bad("hidden_act", activation, "supported is xielu"));
    }
    config.only("post_norm", false)?;
    config.only("qk_norm", true)?;
    let rope = RopeDefaults { theta: 12_000_000.0, ..Defaults::LLAMA.rope };
    let defaults = Defaults { context: 65536, norm_eps: 1e-5, rope, ..Defaults::LLAMA };
    let mut plain = config.clone();
    plain.hidden_act = None;
    let mut spec = base(&plain, &defaults)?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(false), false);
    spec.block = Block {
        before_attention: Some("attention_layernorm"),
        before_mlp: Some("feedforward_layernorm"),
        ..Block::PRE_NORM
    };
    spec.mlp.tensors = MlpTensors::Plain(["up_proj", "down_proj"]);
    spec.mlp.learned_activation = Some("act_fn");
    for layer in &mut spec.attention {
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
    }
    Ok(spec)
}
