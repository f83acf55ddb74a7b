//! The fields of a `config.json` that say how sounds are prepared.

use serde_json::Value;

use super::processor::{ProcessorError, Rule};

/// What families differ in.
pub(super) struct Heard {
    /// The token of a sound where `config.json` doesn't say it.
    pub(super) token: u32,
    /// What stands around it where a template doesn't know sounds.
    pub(super) around: [&'static str; 2],
    /// How sounds are padded, and how many tokens they take.
    pub(super) rule: Rule,
}

/// A size of `audio_config`, 1 at least.
pub(super) fn size(
    config: &Value,
    field: &'static str,
    default: usize,
    most: usize,
) -> Result<usize, ProcessorError> {
    let value = &config["audio_config"][field];
    if value.is_null() {
        return Ok(default);
    }
    let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
    size.filter(|size| (1..=most).contains(size))
        .ok_or_else(|| refused(field, value, &format!("it must be 1 to {most}")))
}

/// Vectors of a window of Whisper's encoder: two for each position.
pub(super) fn window(config: &Value) -> Result<usize, ProcessorError> {
    Ok(2 * size(config, "max_source_positions", 1500, 1 << 16)?)
}

/// What is wrong with a field of `config.json`.
pub(super) fn refused(field: &'static str, value: &Value, bound: &str) -> ProcessorError {
    let (file, bound) = ("config.json", bound.to_owned());
    ProcessorError { file, field, value: value.to_string(), bound }
}
