//! CWM: Llama with sliding windows on three layers of four.

use serde_json::json;

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, RawFields, Result, RopeDefaults, base,
    set_windows, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("CwmForCausalLM", spec).completed_by(complete)];

/// The rotary embedding of files that leave it out.
fn complete(fields: &mut RawFields<'_>) {
    fields.default(
        "rope_parameters",
        json!({
            "rope_type": "llama3", "rope_theta": 1_000_000.0, "factor": 16.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }),
    );
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        head_dim: Some(128),
        context: 131_072,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 1_000_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let windowed = windowed_layers(config, |layer| layer % 4 != 0)?;
    set_windows(config, &mut spec, &windowed, Some(8192))?;
    Ok(spec)
}
