//! Language models that are a part of a model that sees, whichever family they are of: the text's own
//! `model_type` says which. What the picture adds is in `models::vision`.

use serde_json::Value;

use super::{cohere, gpt_oss, granite, internlm, llama, mistral, qwen_moe, qwen2, qwen3};
use crate::models::common::{Architecture, DecoderSpec, HfConfig, Names, RawFields, Result, bad};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("AyaVisionForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("Cohere2VisionForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("DeepseekVLForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("GraniteDoclingForConditionalGeneration", granite_docling)
        .completed_by(complete_granite_docling),
    Architecture::new("Idefics2ForConditionalGeneration", idefics3).completed_by(complete),
    Architecture::new("Idefics3ForConditionalGeneration", idefics3).completed_by(complete),
    Architecture::new("InternVLChatModel", of_text),
    Architecture::new("InternVLForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("JanusForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("LightOnOCRForConditionalGeneration", of_text).completed_by(lighton),
    Architecture::new("LightOnOcrForConditionalGeneration", of_text).completed_by(lighton),
    Architecture::new("LlavaForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("LlavaNextForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("LlavaNextVideoForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("LlavaOnevisionForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("Ovis2ForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("PerceptionLMForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("SmolVLMForConditionalGeneration", idefics3).completed_by(complete),
    Architecture::new("VideoLlama3ForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("VipLlavaForConditionalGeneration", of_text).completed_by(complete),
];

/// Fields that published files leave out of `text_config`, by transformers' defaults.
fn complete(fields: &mut RawFields<'_>) {
    let sizes = match fields.text("model_type") {
        Some("llama") => [4096, 11_008, 32, 32, 32_000],
        Some("mistral") => [4096, 14_336, 32, 32, 32_000],
        _ => return,
    };
    let names = [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
    ];
    for (name, size) in names.into_iter().zip(sizes) {
        fields.default(name, size);
    }
}

/// The same of LightOnOCR, whose text is Qwen3's.
fn lighton(fields: &mut RawFields<'_>) {
    fields.default("model_type", "qwen3");
    let sizes = [
        ("hidden_size", 1024),
        ("intermediate_size", 3072),
        ("num_hidden_layers", 28),
        ("num_attention_heads", 16),
        ("num_key_value_heads", 8),
        ("head_dim", 128),
        ("vocab_size", 151_936),
        ("max_position_embeddings", 40_960),
        ("rope_theta", 1_000_000),
    ];
    for (name, size) in sizes {
        fields.default(name, size);
    }
    fields.default("tie_word_embeddings", true);
}

fn idefics3(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = of_text(config)?;
    spec.names.roots = &["model.text_model.", "model."];
    Ok(spec)
}

/// Layers of Granite Docling's tower whose features are for layers of the decoder.
const DEEPSTACK: usize = 3;

/// The fields of Granite Docling's text, by transformers' defaults.
fn complete_granite_docling(fields: &mut RawFields<'_>) {
    let sizes = [
        ("hidden_size", 1024),
        ("intermediate_size", 2048),
        ("num_hidden_layers", 28),
        ("num_attention_heads", 16),
        ("num_key_value_heads", 4),
        ("vocab_size", 133_800),
        ("max_position_embeddings", 32_768),
    ];
    for (name, size) in sizes {
        fields.default(name, size);
    }
    let multipliers = [
        ("rms_norm_eps", 1e-5),
        ("embedding_multiplier", 12.0),
        ("logits_scaling", 4.0),
        ("residual_multiplier", 0.263),
        ("attention_multiplier", 0.015_625),
    ];
    for (name, number) in multipliers {
        fields.default(name, number);
    }
    fields.default("tie_word_embeddings", true);
}

fn granite_docling(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = granite::spec(config)?;
    spec.names.roots = &["model.text_model.", "model."];
    // Without a tower there are no features for layers.
    let vision = config.field::<Value>("vision_config")?.unwrap_or_default();
    if vision.is_object() {
        let given = vision["deepstack_visual_indexes"].as_array().map(Vec::len);
        spec.picture_layers = given.unwrap_or(DEEPSTACK);
    }
    Ok(spec)
}

/// The decoder that the text's `model_type` names.
pub(super) fn of_text(config: &HfConfig) -> Result<DecoderSpec> {
    let kind = config.field::<String>("model_type")?;
    let mut spec = match kind.as_deref() {
        Some("cohere2") => cohere::spec_2(config),
        Some("internlm2") => internlm::spec_2(config),
        Some("llama") => llama::spec(config),
        Some("mistral") => mistral::spec(config),
        Some("qwen2") => qwen2::spec(config),
        Some("qwen3") => qwen3::spec(config),
        Some("qwen3_moe") => qwen_moe::spec_3(config),
        Some("gpt_oss") => gpt_oss::spec(config),
        _ => {
            let bound = "of the text: supported are cohere2, internlm2, llama, mistral, qwen2, \
                         qwen3, qwen3_moe, gpt_oss";
            Err(bad("model_type", kind, bound))
        }
    }?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    Ok(spec)
}
