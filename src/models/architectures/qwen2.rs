//! Qwen2 and Qwen2.5: Llama with biases of the query, key and value projections, and a sliding
//! window on some layers if `use_sliding_window` is on. MiMo (7B) is Qwen2 by another name.

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, bad, base, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("Qwen2ForCausalLM", spec), Architecture::new("MiMoForCausalLM", spec)];

/// Defaults of the Qwen2 and Qwen3 families.
pub(super) const DEFAULTS: Defaults =
    Defaults { kv_heads: Some(32), context: 32768, ..Defaults::LLAMA };

pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &DEFAULTS)?;
    let windows = windows(config)?;
    for (layer, window) in spec.attention.iter_mut().zip(windows) {
        layer.qkv_bias = true;
        layer.params.window = window;
    }
    Ok(spec)
}

/// The window of each layer: by `layer_types`, else from layer `max_window_layers` on.
pub(super) fn windows(config: &HfConfig) -> Result<Vec<Option<usize>>> {
    let used = config.use_sliding_window.unwrap_or(false);
    let window = config.sliding_window.unwrap_or(Some(4096)).filter(|_| used);
    let first = config.max_window_layers.unwrap_or(28);
    let windowed = windowed_layers(config, |layer| window.is_some() && layer >= first)?;
    if window.is_none() && windowed.contains(&true) {
        let bound = "but `use_sliding_window` and `sliding_window` give no window";
        return Err(bad("layer_types", "sliding_attention", bound));
    }
    Ok(windowed.into_iter().map(|windowed| window.filter(|_| windowed)).collect())
}
