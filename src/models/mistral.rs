//! Mistral and Ministral: Llama with a sliding window on every layer, or on those that
//! `layer_types` names; 4096 positions where the file says nothing, none where it says `null`. It
//! has no biases.

use super::ModelError;
use super::base::{Defaults, base, set_windows, windowed_layers};
use super::config::HfConfig;
use super::decoder::DecoderSpec;

/// What `MistralForCausalLM` and `MinistralForCausalLM` mean.
pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults { kv_heads: Some(8), context: 4096 * 32, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    let window = config.sliding_window.unwrap_or(Some(4096));
    let windowed = windowed_layers(config, |_| window.is_some())?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    Ok(spec)
}
