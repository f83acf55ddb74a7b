//! Mistral and Ministral: Llama without biases, with a sliding window on every layer, or on those
//! that `layer_types` names; 4096 positions by default, none where the file says `null`. Mistral
//! Small 3 has none by default and is part of a multimodal model; Ministral 3 also has a query
//! scale that grows with the position.

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Names, Result, bad, base, set_windows,
    windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("MistralForCausalLM", spec),
    Architecture::new("MinistralForCausalLM", spec),
    Architecture::new("Ministral3ForCausalLM", spec_3),
    Architecture::new("Mistral3ForConditionalGeneration", spec_3),
];

pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { kv_heads: Some(8), context: 4096 * 32, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    let window = config.sliding_window.unwrap_or(Some(4096));
    let windowed = windowed_layers(config, |_| window.is_some())?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    Ok(spec)
}

/// The decoder of `Ministral3ForCausalLM`, and of `Mistral3ForConditionalGeneration` for text
/// alone.
fn spec_3(config: &HfConfig) -> Result<DecoderSpec> {
    let kind = config.field::<String>("model_type")?;
    match kind.as_deref() {
        Some("mistral") => spec(config),
        Some("ministral3") => {
            let mut config = config.clone();
            // Ministral 3 has no window by default.
            config.sliding_window = config.sliding_window.or(Some(None));
            spec(&config)
        }
        _ => Err(bad("model_type", kind, "of the text must be mistral or ministral3")),
    }
}
