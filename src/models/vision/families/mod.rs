//! One file per family of towers.

use serde_json::Value;

use super::spec::TowerSpec;
use crate::models::error::Result;

mod gemma3;
mod gemma4;
mod glm4v;
mod idefics3;
mod internvl;
mod lfm2_vl;
mod llama4;
mod llava;
mod pixtral;
mod qwen2_5_vl;
mod qwen2_vl;
mod qwen3_vl;
mod siglip;

/// Makes a spec of a `config.json`.
type Family = fn(&Value) -> Result<TowerSpec>;

/// The family of a class in `config.json`'s `architectures`.
pub(super) fn find(class: &str) -> Option<Family> {
    Some(match class {
        "Qwen2VLForConditionalGeneration" => qwen2_vl::spec,
        "Qwen2_5_VLForConditionalGeneration" => qwen2_5_vl::spec,
        "Qwen3VLForConditionalGeneration" | "Qwen3VLMoeForConditionalGeneration" => qwen3_vl::spec,
        "Qwen3_5ForConditionalGeneration" | "Qwen3_5MoeForConditionalGeneration" => {
            qwen3_vl::without_deepstack
        }
        "Gemma3ForConditionalGeneration" => gemma3::spec,
        "Gemma4ForConditionalGeneration" => gemma4::spec,
        "Gemma4UnifiedForConditionalGeneration" => gemma4::unified,
        "Glm4vForConditionalGeneration"
        | "Glm4vMoeForConditionalGeneration"
        | "Glm46VForConditionalGeneration" => glm4v::spec,
        "Idefics3ForConditionalGeneration" | "SmolVLMForConditionalGeneration" => idefics3::spec,
        "InternVLForConditionalGeneration" => internvl::spec,
        "Lfm2VlForConditionalGeneration" => lfm2_vl::spec,
        "Llama4ForConditionalGeneration" => llama4::spec,
        "LlavaForConditionalGeneration" => llava::spec,
        "LlavaNextForConditionalGeneration" => llava::next,
        "Mistral3ForConditionalGeneration" => pixtral::mistral3,
        _ => return None,
    })
}
