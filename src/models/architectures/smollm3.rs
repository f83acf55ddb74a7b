//! SmolLM3: Llama without a rotary embedding on every fourth layer, and with a sliding window there
//! if asked for.

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, RopeDefaults, base, read_biases,
    rotated_layers, set_windows, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("SmolLM3ForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(4),
        context: 32768,
        tied: true,
        rope: RopeDefaults { theta: 2_000_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_biases(config, &mut spec);
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
