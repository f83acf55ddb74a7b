//! Llama 2, 3, 3.1, 3.2 and all that is shaped like them: the base that the others differ from,
//! with optional biases.

use super::ModelError;
use super::base::{Defaults, base, set_biases};
use super::config::HfConfig;
use super::decoder::DecoderSpec;

/// What `LlamaForCausalLM` means.
pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = base(config, &Defaults::LLAMA)?;
    let biases = (config.attention_bias.unwrap_or(false), config.mlp_bias.unwrap_or(false));
    set_biases(&mut spec, biases.0, biases.1);
    Ok(spec)
}
