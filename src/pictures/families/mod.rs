//! One file per family of image processors, which reads what a checkpoint's files say.

use serde_json::Value;

use super::fields::Fields;
use super::processor::{Processor, ProcessorError};

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
mod qwen;
mod video_llama;

/// Makes a processor of a checkpoint's files, for pictures whose tokens are stood for by this one.
type Family = fn(&Fields<'_>, u32) -> Result<Processor, ProcessorError>;

/// The same for files that don't name the token of pictures.
type UnnamedFamily = fn(&Fields<'_>) -> Result<Processor, ProcessorError>;

/// The family of a class in `config.json`'s `architectures`.
fn find(class: &str) -> Option<Family> {
    Some(match class {
        "Qwen2VLForConditionalGeneration"
        | "Qwen2_5_VLForConditionalGeneration"
        | "Qwen3VLForConditionalGeneration"
        | "Qwen3VLMoeForConditionalGeneration"
        | "Qwen3OmniMoeForConditionalGeneration"
        | "Qwen3_5ForConditionalGeneration"
        | "Qwen3_5MoeForConditionalGeneration" => qwen::processor,
        "Qwen2_5OmniModel" | "Qwen2_5OmniForConditionalGeneration" => qwen::omni,
        "AyaVisionForConditionalGeneration" => cohere::aya,
        "Cohere2VisionForConditionalGeneration" => cohere::processor,
        "DeepseekVLForConditionalGeneration" => deepseek_vl::processor,
        "Gemma3ForConditionalGeneration" => gemma3::processor,
        "Gemma4ForConditionalGeneration" => gemma4::processor,
        "Gemma4UnifiedForConditionalGeneration" => gemma4::unified,
        "Glm4vForConditionalGeneration"
        | "Glm4vMoeForConditionalGeneration"
        | "Glm46VForConditionalGeneration"
        | "GlmOcrForConditionalGeneration" => glm4v::processor,
        "GraniteDoclingForConditionalGeneration" => granite_docling::processor,
        "Idefics2ForConditionalGeneration" => idefics2::processor,
        "Idefics3ForConditionalGeneration" | "SmolVLMForConditionalGeneration" => {
            idefics3::processor
        }
        "InternVLForConditionalGeneration" => internvl::processor,
        "KimiVLForConditionalGeneration" => kimi_vl::processor,
        "Kimi_K25ForConditionalGeneration" => kimi_vl::k25,
        "Lfm2VlForConditionalGeneration" => lfm2_vl::processor,
        "Llama4ForConditionalGeneration" => llama4::processor,
        "LlavaForConditionalGeneration" | "VipLlavaForConditionalGeneration" => llava::processor,
        "LlavaNextForConditionalGeneration" | "LlavaNextVideoForConditionalGeneration" => {
            llava::next
        }
        "LlavaOnevisionForConditionalGeneration" => llava::one_vision,
        "MiniCPMOcrForConditionalGeneration" => minicpmv::ocr,
        "MiniCPMV4_6ForConditionalGeneration" => minicpmv::processor,
        "Mistral3ForConditionalGeneration" => pixtral::mistral3,
        "LightOnOCRForConditionalGeneration" | "LightOnOcrForConditionalGeneration" => {
            pixtral::lighton
        }
        "JanusForConditionalGeneration" => deepseek_vl::janus,
        "Ovis2ForConditionalGeneration" => ovis::processor,
        "PaddleOCRVLForConditionalGeneration" => paddle_ocr::processor,
        "PaliGemmaForConditionalGeneration" => gemma3::pali,
        "PerceptionLMForConditionalGeneration" => perception_lm::processor,
        "VideoLlama3ForConditionalGeneration" => video_llama::processor,
        _ => return None,
    })
}

/// The family of a class whose files don't name the token of pictures.
fn find_unnamed(class: &str) -> Option<UnnamedFamily> {
    match class {
        "InternVLChatModel" => Some(internvl::chat),
        "MiniCPMV" => Some(minicpmv::resampled),
        _ => None,
    }
}

impl Processor {
    /// The processor that `preprocessor_config.json` describes, for the model of `config.json`; `None`
    /// if the model doesn't see, or not here.
    ///
    /// # Errors
    ///
    /// A field whose value no such processor has.
    pub fn from_json(
        config: &Value,
        preprocessor: Option<&Value>,
    ) -> Result<Option<Self>, ProcessorError> {
        let none = Value::Null;
        // Models that speak have the part that sees and thinks in a field.
        let own = config.get("thinker_config").unwrap_or(config);
        let fields = Fields { fields: preprocessor.unwrap_or(&none), config: own };
        let classes = || config["architectures"].as_array().into_iter().flatten();
        let unnamed = classes().filter_map(Value::as_str).find_map(find_unnamed);
        if let Some(family) = unnamed.filter(|_| fields.vision().is_object()) {
            return family(&fields).map(Some);
        }
        let Some(family) = classes().filter_map(Value::as_str).find_map(find) else {
            return Ok(None);
        };
        let names = ["image_token_id", "image_token_index", "media_placeholder_token_id"];
        let image = fields.token(names)?;
        match image.filter(|_| fields.vision().is_object()) {
            Some(image) => family(&fields, image).map(Some),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pictures::picture::Rgb;
    use crate::pictures::processor::Detail;

    fn config() -> Value {
        json!({"architectures": ["Qwen2VLForConditionalGeneration"], "vision_config": {},
               "image_token_id": 9})
    }

    #[test]
    fn a_picture_becomes_as_many_tokens_as_its_grid_has() {
        let processor = Processor::from_json(&config(), None).unwrap().unwrap();
        let rgb = Rgb { width: 100, height: 37, pixels: vec![0; 11_100] };
        let prepared = processor.prepare(&rgb, Detail::Full).unwrap();
        let parts: Vec<_> = prepared.parts().collect();
        assert_eq!((parts.len(), parts[0].1), (1, &(0..4)));
        assert_eq!(parts[0].0.grid(), [1, 4]);
    }

    #[test]
    fn a_processor_of_other_numbers_is_refused_by_name() {
        let refused =
            |fields: Value| Processor::from_json(&config(), Some(&fields)).unwrap_err().to_string();
        assert!(refused(json!({"patch_size": 0})).contains("`patch_size` is 0"));
        assert!(refused(json!({"resample": 0})).contains("`resample` is 0"));
        assert!(refused(json!({"image_std": [1.0, 0.0, 1.0]})).contains("image_std"));
        assert!(refused(json!({"image_mean": [1.0]})).contains("image_mean"));
        assert!(refused(json!({"min_pixels": 9, "max_pixels": 4})).contains("size"));
        assert_eq!(Processor::from_json(&json!({}), None), Ok(None));
    }
}
