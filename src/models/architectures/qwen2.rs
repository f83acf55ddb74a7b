//! Qwen2 and Qwen2.5: Llama with biases on the query, key and value projections, and a sliding
//! window on some layers if `use_sliding_window` is on.

use crate::models::ModelError;
use crate::models::common::base::{Defaults, base};
use crate::models::config::{HfConfig, bad};
use crate::models::decoder::DecoderSpec;

/// What the file need not say.
pub(super) const DEFAULTS: Defaults =
    Defaults { kv_heads: Some(32), context: 32768, ..Defaults::LLAMA };

/// What `Qwen2ForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = base(config, &DEFAULTS)?;
    let windows = windows(config)?;
    for (layer, window) in spec.attention.iter_mut().zip(windows) {
        layer.qkv_bias = true;
        layer.params.window = window;
    }
    Ok(spec)
}

/// The window of each layer: as `layer_types` says, else from `max_window_layers` on.
pub(super) fn windows(config: &HfConfig) -> Result<Vec<Option<usize>>, ModelError> {
    let used = config.use_sliding_window.unwrap_or(false);
    let window = config.sliding_window.unwrap_or(Some(4096)).filter(|_| used);
    let Some(types) = &config.layer_types else {
        let first = config.max_window_layers.unwrap_or(28);
        return Ok((0..config.num_hidden_layers).map(|i| window.filter(|_| i >= first)).collect());
    };
    let one = |kind: &String| match (kind.as_str(), window) {
        ("full_attention", _) => Ok(None),
        ("sliding_attention", Some(window)) => Ok(Some(window)),
        ("sliding_attention", None) => Err(bad(
            "layer_types",
            kind,
            "but `use_sliding_window` and `sliding_window` give no window",
        )),
        _ => Err(bad("layer_types", kind, "supported are full_attention and sliding_attention")),
    };
    types.iter().map(one).collect()
}
