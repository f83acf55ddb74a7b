//! Voxtral: Whisper's encoder; the states of several positions together, and two products.

use serde_json::Value;

use crate::models::audio::spec::{AudioFields, AudioSpec};
use crate::models::error::{Result, bad};
use crate::models::vision::{Stage, VisionFields};

/// The encoder of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<AudioSpec> {
    let fields = AudioFields(&config["audio_config"]);
    let front = fields.whisper()?;
    let spec = fields.encoder(front, [1280, 32, 20])?;
    let joined = spec.intermediate / spec.hidden;
    if joined * spec.hidden != spec.intermediate {
        let bound = format!("must be a multiple of {}", spec.hidden);
        return Err(bad("audio_config.intermediate_size", spec.intermediate, bound));
    }
    let output = VisionFields(&config["text_config"]).size("hidden_size", 3072)?;
    let activation = VisionFields(config).activation_of("projector_hidden_act", "gelu")?;
    AudioSpec {
        joined,
        last_norm: Some("layer_norm"),
        connector: vec![
            Stage::Join,
            Stage::Product("linear_1", output, false),
            Stage::Activation(activation),
            Stage::Product("linear_2", output, false),
        ],
        output,
        ..spec
    }
    .checked()
}
