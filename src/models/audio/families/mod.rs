//! One file per family of encoders.

use serde_json::Value;

use super::spec::AudioSpec;
use crate::models::error::Result;

mod qwen2_audio;
mod qwen3_asr;
mod voxtral;

/// Makes a spec of a `config.json`.
type Family = fn(&Value) -> Result<AudioSpec>;

/// The family of a class in `config.json`'s `architectures`.
pub(super) fn find(class: &str) -> Option<Family> {
    Some(match class {
        "Qwen2AudioForConditionalGeneration" => qwen2_audio::spec,
        "Qwen3ASRForConditionalGeneration" => qwen3_asr::spec,
        "VoxtralForConditionalGeneration" => voxtral::spec,
        _ => return None,
    })
}
