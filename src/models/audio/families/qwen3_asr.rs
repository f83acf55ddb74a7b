//! Qwen3-ASR: convolutions over time and frequency, chunk by chunk, and two products behind the layers.

use serde_json::Value;

use crate::models::audio::spec::{AudioFields, AudioSpec, Front};
use crate::models::error::{Result, bad};
use crate::models::vision::Stage;

/// The encoder of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<AudioSpec> {
    let fields = AudioFields(&config["audio_config"]);
    let frames = 2 * fields.size(&["n_window"], 50)?;
    let window = fields.size(&["n_window_infer"], 800)?;
    if !window.is_multiple_of(frames) {
        return Err(bad("n_window_infer", window, format!("must be a multiple of {frames}")));
    }
    let channels = fields.size(&["downsample_hidden_size"], 480)?;
    let front = Front::Chunks { channels, frames, chunks: window / frames };
    let spec = fields.encoder(front, [1024, 24, 16])?;
    let output = fields.size(&["output_dim"], 3584)?;
    AudioSpec {
        key_bias: true,
        last_norm: Some("ln_post"),
        connector: vec![
            Stage::Product("linear_1", spec.hidden, true),
            Stage::Activation(spec.activation),
            Stage::Product("linear_2", output, true),
        ],
        output,
        ..spec
    }
    .checked()
}
