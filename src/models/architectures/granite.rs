//! Granite: Llama with multipliers of the embeddings, of attention scores, of the residuals and of
//! logits. A later class has sliding windows and an attention sink of each head, and may have rotary
//! embeddings that differ by layer.
//!
//! HyperCLOVA X is Granite with norms after both parts of a layer, that multiplies logits where
//! Granite divides them.

use crate::models::common::{
    self, Architecture, Block, DecoderSpec, Defaults, HfConfig, Result, bad, base, read_biases,
    windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("GraniteForCausalLM", spec),
    Architecture::new("GraniteSWAForCausalLM", windowed),
    Architecture::new("HyperCLOVAXForCausalLM", hyper_clova),
];
pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    with(config, &Defaults::LLAMA)
}

/// A Granite decoder with these defaults.
pub(super) fn with(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec> {
    let mut spec = base(config, defaults)?;
    read_biases(config, &mut spec);
    spec.embedding_scale = config.number_or("embedding_multiplier", 1.0)?;
    spec.block.residual_scale = config.number_or("residual_multiplier", 1.0)?;
    spec.logit_scale = 1.0 / config.positive("logits_scaling")?.unwrap_or(1.0);
    let scale = config.number_or("attention_multiplier", 1.0)?;
    for layer in &mut spec.attention {
        layer.params.scale = scale;
    }
    Ok(spec)
}

fn windowed(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec(config)?;
    set_windows(config, &mut spec)?;
    Ok(spec)
}

/// Sets windows and attention sinks, and a rotary embedding for each base in `layer_rope_theta`, of
/// which 0 means none.
pub(super) fn set_windows(config: &HfConfig, spec: &mut DecoderSpec) -> Result<()> {
    let windowed = windowed_layers(config, |layer| layer % 4 != 0)?;
    common::set_windows(config, spec, &windowed, Some(128))?;
    for layer in &mut spec.attention {
        layer.sinks = Some("sinks");
    }
    let name = "layer_rope_theta";
    let Some(bases) = config.field::<Vec<f64>>(name)? else { return Ok(()) };
    if bases.len() != config.num_hidden_layers {
        let bound = format!("must have a number for each of {} layers", config.num_hidden_layers);
        return Err(bad(name, bases.len(), bound));
    }
    let mut known: Vec<f64> = Vec::new();
    spec.ropes.clear();
    for (layer, base) in spec.attention.iter_mut().zip(bases) {
        layer.rope = match known.iter().position(|other| other.to_bits() == base.to_bits()) {
            _ if base == 0.0 => None,
            None => {
                known.push(base);
                let rope = config.rope_with_base(layer.head_dim, Defaults::LLAMA.rope, base)?;
                spec.ropes.push(rope);
                Some(known.len() - 1)
            }
            known => known,
        };
    }
    Ok(())
}

fn hyper_clova(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec(config)?;
    spec.logit_scale = config.positive("logits_scaling")?.unwrap_or(1.0);
    if config.field::<f64>("attention_multiplier")?.is_none() {
        for layer in &mut spec.attention {
            layer.params.scale = common::scale(layer.head_dim);
        }
    }
    if config.field_or("use_post_norm", true)? {
        spec.block = Block {
            after_attention: Some("post_norm1"),
            after_mlp: Some("post_norm2"),
            ..spec.block
        };
    }
    Ok(spec)
}
