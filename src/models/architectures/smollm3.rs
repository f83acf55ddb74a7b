//! SmolLM3: Llama with no rotation at all on every fourth layer, and a window there if asked for.

use crate::models::ModelError;
use crate::models::common::base::{
    Defaults, base, rotated_layers, set_biases, set_windows, windowed_layers,
};
use crate::models::config::HfConfig;
use crate::models::config::rope::RopeDefaults;
use crate::models::decoder::DecoderSpec;

/// What `SmolLM3ForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        kv_heads: Some(4),
        context: 32768,
        tied: true,
        rope: RopeDefaults { theta: 2_000_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let biases = (config.attention_bias.unwrap_or(false), config.mlp_bias.unwrap_or(false));
    set_biases(&mut spec, biases.0, biases.1);
    let rotated = rotated_layers(config)?;
    let used = config.use_sliding_window.unwrap_or(false);
    let used = used && config.sliding_window.flatten().is_some();
    let windowed = windowed_layers(config, |layer| used && !rotated[layer])?;
    set_windows(config, &mut spec, &windowed, None)?;
    for (layer, rotated) in spec.attention.iter_mut().zip(rotated) {
        layer.rope = rotated.then_some(0);
    }
    Ok(spec)
}
