//! Mistral and Ministral: Llama with a sliding window on every layer, or on those that
//! `layer_types` names; 4096 positions where the file says nothing, none where it says `null`. It
//! has no biases. Mistral Small 3 is one, without a window by default, inside of a model that also
//! sees pictures; Ministral 3 also has queries that grow with their position.

use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_windows, windowed_layers};
use crate::models::config::{HfConfig, bad};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::Names;

/// What `MistralForCausalLM` and `MinistralForCausalLM` mean.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults { kv_heads: Some(8), context: 4096 * 32, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.names.roots = Names::INSIDE_OF_MORE;
    let window = config.sliding_window.unwrap_or(Some(4096));
    let windowed = windowed_layers(config, |_| window.is_some())?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    Ok(spec)
}

/// What `Ministral3ForCausalLM` means, and `Mistral3ForConditionalGeneration` without pictures.
pub(crate) fn spec_3(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let kind = config.field::<String>("model_type")?;
    match kind.as_deref() {
        Some("mistral") => spec(config),
        Some("ministral3") => {
            let mut config = config.clone();
            // The default there.
            config.sliding_window = config.sliding_window.or(Some(None));
            spec(&config)
        }
        _ => Err(bad("model_type", kind, "of the text must be mistral or ministral3")),
    }
}
