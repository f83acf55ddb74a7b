//! Language models that are a part of a model that sees, whichever family they are of: the text's own
//! `model_type` says which. What the picture adds is in `models::vision`.

use super::{gpt_oss, llama, mistral, qwen_moe, qwen2, qwen3};
use crate::models::common::{Architecture, DecoderSpec, HfConfig, Names, RawFields, Result, bad};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Idefics3ForConditionalGeneration", idefics3).completed_by(complete),
    Architecture::new("InternVLForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("LlavaForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("LlavaNextForConditionalGeneration", of_text).completed_by(complete),
    Architecture::new("SmolVLMForConditionalGeneration", idefics3).completed_by(complete),
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

fn idefics3(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = of_text(config)?;
    spec.names.roots = &["model.text_model.", "model."];
    Ok(spec)
}

/// The decoder that the text's `model_type` names.
fn of_text(config: &HfConfig) -> Result<DecoderSpec> {
    let kind = config.field::<String>("model_type")?;
    let mut spec = match kind.as_deref() {
        Some("llama") => llama::spec(config),
        Some("mistral") => mistral::spec(config),
        Some("qwen2") => qwen2::spec(config),
        Some("qwen3") => qwen3::spec(config),
        Some("qwen3_moe") => qwen_moe::spec_3(config),
        Some("gpt_oss") => gpt_oss::spec(config),
        _ => {
            let bound =
                "of the text: supported are llama, mistral, qwen2, qwen3, qwen3_moe, gpt_oss";
            Err(bad("model_type", kind, bound))
        }
    }?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    Ok(spec)
}
