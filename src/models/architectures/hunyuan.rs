//! Hunyuan (dense, version 1): Llama with a norm of every query and key head behind the rotation.

use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases};
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;

/// What `HunYuanDenseV1ForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    config.only("use_qk_norm", true)?;
    config.only("use_cla", false)?;
    let mut spec = base(config, &Defaults { norm_eps: 1e-5, ..Defaults::LLAMA })?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(false), false);
    for layer in &mut spec.attention {
        layer.query_key_norm = Some(QueryKeyNorm {
            norm: spec.norm,
            over: NormSpan::RotatedHead,
            tensors: ["query_layernorm", "key_layernorm"],
        });
    }
    Ok(spec)
}
