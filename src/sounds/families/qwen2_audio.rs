//! Qwen2-Audio: one window of Whisper's; a token is the mean of two positions.

use serde_json::Value;

use crate::sounds::fields::{Heard, window};
use crate::sounds::processor::{ProcessorError, Rule};

pub(super) fn heard(config: &Value) -> Result<Heard, ProcessorError> {
    Ok(Heard {
        token: 151_646,
        around: ["<|audio_bos|>", "<|audio_eos|>"],
        rule: Rule::Window { frames: window(config)? },
    })
}
