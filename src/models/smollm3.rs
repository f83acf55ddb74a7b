//! SmolLM3: Llama with no rotation at all on every fourth layer, and a window there if asked for.

use super::ModelError;
use super::base::{Defaults, base, set_biases, set_windows, windowed_layers};
use super::config::HfConfig;
use super::config::bad;
use super::config::rope::RopeDefaults;
use super::decoder::DecoderSpec;

/// What `SmolLM3ForCausalLM` means.
pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
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
    let layers = config.num_hidden_layers;
    let interval = config.field::<usize>("no_rope_layer_interval")?.unwrap_or(4).max(1);
    // In spite of its name this is 1 for layers with a rotation.
    let rotated = config.field::<Vec<u8>>("no_rope_layers")?;
    let rotated = rotated.map(|given| given.into_iter().map(|one| one != 0).collect::<Vec<_>>());
    let rotated = rotated.unwrap_or_else(|| (1..=layers).map(|i| i % interval != 0).collect());
    if rotated.len() != layers {
        let bound = format!("must have a number for each of {layers} layers");
        return Err(bad("no_rope_layers", rotated.len(), bound));
    }
    let used = config.use_sliding_window.unwrap_or(false);
    let used = used && config.sliding_window.flatten().is_some();
    let windowed = windowed_layers(config, |layer| used && !rotated[layer])?;
    set_windows(config, &mut spec, &windowed, None)?;
    for (layer, rotated) in spec.attention.iter_mut().zip(rotated) {
        layer.rope = rotated.then_some(0);
    }
    Ok(spec)
}
