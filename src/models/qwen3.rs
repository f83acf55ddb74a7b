//! Qwen3: Llama with a norm on every query and key head, a head size of 128 where the file says
//! nothing, and Qwen2's windows. Biases of the attention are an option and usually off.

use super::ModelError;
use super::config::HfConfig;
use super::decoder::DecoderSpec;
use super::{llama, qwen2};

/// What `Qwen3ForCausalLM` means.
pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let config = &HfConfig { head_dim: config.head_dim.or(Some(128)), ..config.clone() };
    let bias = config.attention_bias.unwrap_or(false);
    let mut spec = llama::base(config, 32, 32768)?;
    let windows = qwen2::windows(config)?;
    for (layer, window) in spec.attention.iter_mut().zip(windows) {
        layer.qkv_bias = bias;
        layer.output_bias = bias;
        layer.head_norm_eps = Some(llama::norm_eps(config));
        layer.params.window = window;
    }
    Ok(spec)
}
