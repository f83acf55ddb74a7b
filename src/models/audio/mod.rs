//! Encoders of sound: from log-mel vectors to the features of a sound's tokens, as wide as a decoder's hidden
//! states. One encoder for all; each family is a small file that describes its own as an [`AudioSpec`].
//!
//! How to add a family: a file in `families/` that makes a spec of `config.json`, and a line in its table.

mod encoder;
mod families;
mod front;
mod layer;
mod spec;

use serde_json::Value;

pub use encoder::{AudioEncoder, Hearing};
pub use spec::AudioSpec;

use super::error::Result;

/// The encoder that a `config.json` describes; `None` if the model doesn't hear, or not here.
///
/// # Errors
///
/// A field whose value no encoder of the family has.
pub fn spec(config: &Value) -> Result<Option<AudioSpec>> {
    if !config["audio_config"].is_object() {
        return Ok(None);
    }
    let classes = config["architectures"].as_array().into_iter().flatten();
    let family = classes.filter_map(Value::as_str).find_map(families::find);
    family.map(|family| family(config)).transpose()
}
