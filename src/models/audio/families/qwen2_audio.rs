//! Qwen2-Audio: Whisper's encoder whose norm stands behind the mean of two positions; one product.

use serde_json::Value;

use crate::layers::norm::NormSpec;
use crate::models::audio::spec::{AudioFields, AudioSpec, EPS};
use crate::models::error::Result;
use crate::models::vision::{Stage, VisionFields};

/// The encoder of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<AudioSpec> {
    let fields = AudioFields(&config["audio_config"]);
    let front = fields.whisper()?;
    let spec = fields.encoder(front, [1280, 32, 20])?;
    let output = VisionFields(&config["text_config"]).size("hidden_size", 4096)?;
    AudioSpec {
        joined: 2,
        connector: vec![
            Stage::Mean,
            Stage::TowerNorm("layer_norm", NormSpec::layer(EPS, true)),
            Stage::Product("linear", output, true),
        ],
        output,
        ..spec
    }
    .checked()
}
