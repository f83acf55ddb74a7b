//! Orion, as configured by its own code on the hub: Llama with layer norms.

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, base, set_layer_norm,
};

pub(super) const CLASSES: &[Architecture] = &[Architecture::new("OrionForCausalLM", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults { context: 4096, ..Defaults::LLAMA })?;
    // The norms' epsilon is that of RMS norms by name alone.
    set_layer_norm(config, &mut spec, "rms_norm_eps", true)?;
    Ok(spec)
}
