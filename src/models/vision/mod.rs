//! Vision towers: from the pixels of a picture to the features of its tokens, as wide as a decoder's
//! hidden states. One tower for all; each family is a small file that describes its own as a
//! [`TowerSpec`].
//!
//! How to add a family: a file in `families/` that makes a spec of `config.json`, and a line in
//! its table.

mod attention;
mod connector;
mod families;
mod grid;
mod layer;
mod patches;
mod product;
mod spec;
mod tower;

use serde_json::Value;

pub use spec::TowerSpec;
pub use tower::{Look, Tower};

use super::error::Result;

/// The tower that a `config.json` describes; `None` if the model doesn't see, or not here.
///
/// # Errors
///
/// A field whose value no tower of the family has.
pub fn spec(config: &Value) -> Result<Option<TowerSpec>> {
    if !config["vision_config"].is_object() {
        return Ok(None);
    }
    let classes = config["architectures"].as_array().into_iter().flatten();
    let family = classes.filter_map(Value::as_str).find_map(families::find);
    family.map(|family| family(config)).transpose()
}
