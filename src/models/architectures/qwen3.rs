//! Qwen3: Llama with a norm on every query and key head, a head size of 128 where the file says
//! nothing, and Qwen2's windows. Biases of the attention are an option and usually off.

use super::qwen2;
use crate::layers::attention::QueryKeyNorm;
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases};
use crate::models::config::HfConfig;
use crate::models::decoder::DecoderSpec;

/// What `Qwen3ForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = base(config, &Defaults { head_dim: Some(128), ..qwen2::DEFAULTS })?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(false), false);
    let windows = qwen2::windows(config)?;
    for (layer, window) in spec.attention.iter_mut().zip(windows) {
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
        layer.params.window = window;
    }
    Ok(spec)
}
