//! One file per family of towers.

use serde_json::Value;

use super::spec::TowerSpec;
use crate::models::error::Result;

mod cohere;
mod deepseek_vl;
mod gemma3;
mod gemma4;
mod glm4v;
mod granite_docling;
mod idefics2;
mod idefics3;
mod internvl;
mod kimi_vl;
mod lfm2_vl;
mod llama4;
mod llava;
mod minicpmv;
mod ovis;
mod paddle_ocr;
mod perception_lm;
mod pixtral;
mod qwen2_5_vl;
mod qwen2_vl;
mod qwen3_vl;
mod siglip;
mod video_llama;

/// Makes a spec of a `config.json`.
type Family = fn(&Value) -> Result<TowerSpec>;

/// The family of a class in `config.json`'s `architectures`.
pub(super) fn find(class: &str) -> Option<Family> {
    Some(match class {
        "Qwen2VLForConditionalGeneration" => qwen2_vl::spec,
        "Qwen2_5_VLForConditionalGeneration" => qwen2_5_vl::spec,
        "Qwen2_5OmniModel" | "Qwen2_5OmniForConditionalGeneration" => qwen2_5_vl::omni,
        "Qwen3OmniMoeForConditionalGeneration" => qwen3_vl::omni,
        "Qwen3VLForConditionalGeneration" | "Qwen3VLMoeForConditionalGeneration" => qwen3_vl::spec,
        "Qwen3_5ForConditionalGeneration" | "Qwen3_5MoeForConditionalGeneration" => {
            qwen3_vl::without_deepstack
        }
        "AyaVisionForConditionalGeneration" => cohere::aya,
        "Cohere2VisionForConditionalGeneration" => cohere::spec,
        "DeepseekVLForConditionalGeneration" => deepseek_vl::spec,
        "Gemma3ForConditionalGeneration" => gemma3::spec,
        "Gemma4ForConditionalGeneration" => gemma4::spec,
        "Gemma4UnifiedForConditionalGeneration" => gemma4::unified,
        "Glm4vForConditionalGeneration"
        | "Glm4vMoeForConditionalGeneration"
        | "Glm46VForConditionalGeneration" => glm4v::spec,
        "GlmOcrForConditionalGeneration" => glm4v::ocr,
        "GraniteDoclingForConditionalGeneration" => granite_docling::spec,
        "Idefics2ForConditionalGeneration" => idefics2::spec,
        "Idefics3ForConditionalGeneration" | "SmolVLMForConditionalGeneration" => idefics3::spec,
        "InternVLChatModel" => internvl::chat,
        "InternVLForConditionalGeneration" => internvl::spec,
        "JanusForConditionalGeneration" => deepseek_vl::janus,
        "KimiVLForConditionalGeneration" => kimi_vl::spec,
        "Kimi_K25ForConditionalGeneration" => kimi_vl::k25,
        "Lfm2VlForConditionalGeneration" => lfm2_vl::spec,
        "LightOnOCRForConditionalGeneration" | "LightOnOcrForConditionalGeneration" => {
            pixtral::lighton
        }
        "Llama4ForConditionalGeneration" => llama4::spec,
        "LlavaForConditionalGeneration" => llava::spec,
        "LlavaNextForConditionalGeneration" | "LlavaNextVideoForConditionalGeneration" => {
            llava::next
        }
        "LlavaOnevisionForConditionalGeneration" => llava::one_vision,
        "MiniCPMOcrForConditionalGeneration" => minicpmv::ocr,
        "MiniCPMV" => minicpmv::resampled,
        "MiniCPMV4_6ForConditionalGeneration" => minicpmv::spec,
        "Mistral3ForConditionalGeneration" => pixtral::mistral3,
        "Ovis2ForConditionalGeneration" => ovis::spec,
        "PaddleOCRVLForConditionalGeneration" => paddle_ocr::spec,
        "PaliGemmaForConditionalGeneration" => gemma3::pali,
        "PerceptionLMForConditionalGeneration" => perception_lm::spec,
        "VideoLlama3ForConditionalGeneration" => video_llama::spec,
        "VipLlavaForConditionalGeneration" => llava::vip,
        _ => return None,
    })
}
