//! The language model of Llama 3.2 Vision: Llama with layers that attend to a picture. A text without a
//! picture passes by those.

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, Result, RopeDefaults, base,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("MllamaForCausalLM", spec),
    Architecture::new("MllamaForConditionalGeneration", spec),
];

/// Tokens of pictures, which the embedding has and the output head lacks.
const PICTURE_TOKENS: usize = 8;

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        context: 131_072,
        norm_eps: 1e-5,
        rope: RopeDefaults { theta: 500_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    config.only("tie_word_embeddings", false)?;
    spec.names.roots = &["model.", "language_model.model.", "model.language_model."];
    spec.embedding_rows = Some(config.vocab_size + PICTURE_TOKENS);
    let layers = config.num_hidden_layers;
    let name = "cross_attention_layers";
    let mut reads = vec![true; layers];
    for index in config.field_or(name, vec![3usize, 8, 13, 18, 23, 28, 33, 38])? {
        // The default is that of the larger models.
        if let Some(layer) = reads.get_mut(index) {
            *layer = false;
        }
    }
    let inner = |reads: &bool| if *reads { config.intermediate_size } else { 0 };
    spec.intermediate_sizes = Some(reads.iter().map(inner).collect());
    spec.mixers = Some(reads);
    Ok(spec)
}
