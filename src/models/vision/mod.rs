//! Vision towers: from the pixels of a picture to the features of its tokens, as wide as a decoder's
//! hidden states. One tower for all; each family is a small file that describes its own as a
//! [`TowerSpec`].
//!
//! How to add a family: a file in `families/` that makes a spec of `config.json`, and a line in
//! its table.

mod attention;
mod connector;
mod families;
mod fields;
mod grid;
mod layer;
mod merger;
mod patches;
mod perceiver;
mod product;
mod resampler;
mod spec;
mod tower;

use serde_json::Value;

pub(super) use connector::Connector;
pub(super) use fields::VisionFields;
pub(super) use layer::activate;
pub use spec::TowerSpec;
pub(super) use spec::{Roots, Stage, TowerActivation};
pub use tower::{Look, Tower};

use super::error::Result;

/// The tower that a `config.json` describes; `None` if the model doesn't see, or not here.
///
/// # Errors
///
/// A field whose value no tower of the family has.
pub fn spec(config: &Value) -> Result<Option<TowerSpec>> {
    let classes = config["architectures"].as_array().into_iter().flatten();
    let family = classes.filter_map(Value::as_str).find_map(families::find);
    // Models that speak have the part that sees and thinks in a field.
    let config = config.get("thinker_config").unwrap_or(config);
    if !config["vision_config"].is_object() {
        return Ok(None);
    }
    family.map(|family| family(config)).transpose()
}
