//! Mistral: Llama with a sliding window on every layer; 4096 positions where the file says
//! nothing, none where it says `null`. It has no biases.

use super::ModelError;
use super::config::HfConfig;
use super::decoder::DecoderSpec;
use super::llama;

/// What `MistralForCausalLM` means.
pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let window = config.sliding_window.unwrap_or(Some(4096));
    let mut spec = llama::base(config, 8, 4096 * 32)?;
    for layer in &mut spec.attention {
        layer.params.window = window;
    }
    Ok(spec)
}
