//! Language models that are a part of a model that hears, whichever family they are of: the text's own
//! `model_type` says which. What the sound adds is in `models::audio`.

use super::vision_language::of_text;
use crate::models::common::{Architecture, RawFields};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Qwen2AudioForConditionalGeneration", of_text).completed_by(qwen2_audio),
    Architecture::new("Qwen3ASRForConditionalGeneration", of_text).completed_by(qwen3_asr),
    Architecture::new("VoxtralForConditionalGeneration", of_text).completed_by(voxtral),
];

/// Fields that the published files leave out of `text_config`, by transformers' defaults.
fn qwen2_audio(fields: &mut RawFields<'_>) {
    let sizes = [4096, 22_016, 32, 32, 32, 151_936];
    complete(fields, sizes);
    fields.default("model_type", "qwen2");
    fields.default("max_position_embeddings", 32_768);
}

fn qwen3_asr(fields: &mut RawFields<'_>) {
    complete(fields, [2048, 6144, 28, 16, 8, 151_936]);
    fields.default("model_type", "qwen3");
    fields.default("head_dim", 128);
    fields.default("max_position_embeddings", 65_536);
}

fn voxtral(fields: &mut RawFields<'_>) {
    complete(fields, [3072, 8192, 30, 32, 8, 131_072]);
    fields.default("model_type", "llama");
    fields.default("head_dim", 128);
    fields.default("max_position_embeddings", 131_072);
    fields.default("rms_norm_eps", 1e-5);
    fields.default("rope_theta", 100_000_000.0);
}

fn complete(fields: &mut RawFields<'_>, sizes: [u32; 6]) {
    let names = [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
    ];
    for (name, size) in names.into_iter().zip(sizes) {
        fields.default(name, size);
    }
}
