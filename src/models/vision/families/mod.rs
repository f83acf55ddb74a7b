//! One file per family of towers.

use serde_json::Value;

use super::spec::TowerSpec;
use crate::models::error::Result;

mod qwen2_5_vl;
mod qwen2_vl;
mod qwen3_vl;

/// Makes a spec of a `vision_config`.
type Family = fn(&Value) -> Result<TowerSpec>;

/// The family of a class in `config.json`'s `architectures`.
pub(super) fn find(class: &str) -> Option<Family> {
    Some(match class {
        "Qwen2VLForConditionalGeneration" => qwen2_vl::spec,
        "Qwen2_5_VLForConditionalGeneration" => qwen2_5_vl::spec,
        "Qwen3VLForConditionalGeneration" => qwen3_vl::spec,
        "Qwen3_5ForConditionalGeneration" | "Qwen3_5MoeForConditionalGeneration" => {
            qwen3_vl::without_deepstack
        }
        _ => return None,
    })
}
