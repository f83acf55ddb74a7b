//! ModernBERT as a decoder (Ettin): its layers with causal attention, and a linear layer and a norm before
//! a head with a bias.

use super::modern_bert;
use crate::layers::attention::QkvTensors;
use crate::models::common::{
    Architecture, BeforeHead, DecoderSpec, Head, HfConfig, MAX_SIZE, RawFields, Result, activation,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("ModernBertDecoderForCausalLM", spec).completed_by(complete)];

/// The size of the window is half of a field that counts both sides.
fn complete(fields: &mut RawFields<'_>) {
    modern_bert::complete(fields);
    fields.remove("sliding_window");
    fields.remove("num_key_value_heads");
    fields.default("tie_word_embeddings", true);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = modern_bert::spec(config)?;
    spec.names.head = "decoder";
    if config.field_or("decoder_bias", true)? {
        spec.head = Head::Biased;
    }
    let act = config.field::<String>("classifier_activation")?;
    spec.before_head = Some(BeforeHead {
        dense: "lm_head.dense",
        bias: config.field_or("classifier_bias", false)?,
        activation: activation(act.as_deref().unwrap_or("gelu"))?,
        norm: "lm_head.norm",
    });
    let window = config.size_or("local_attention", 128, 2..=MAX_SIZE)? / 2;
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Separate(["q_proj", "k_proj", "v_proj"]);
        layer.params.window = layer.params.window.map(|_| window);
    }
    Ok(spec)
}
