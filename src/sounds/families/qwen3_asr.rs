//! Qwen3-ASR: chunks of a second, as many as there are; a token for every eight vectors of one.

use serde_json::Value;

use crate::sounds::fields::{Heard, size};
use crate::sounds::processor::{ProcessorError, Rule};

/// Samples of the shortest sound.
const SAMPLES: usize = 8000;

pub(super) fn heard(config: &Value) -> Result<Heard, ProcessorError> {
    let frames = 2 * size(config, "n_window", 50, 1 << 12)?;
    Ok(Heard {
        token: 151_676,
        around: ["<|audio_start|>", "<|audio_end|>"],
        rule: Rule::Chunks { samples: SAMPLES, frames },
    })
}
