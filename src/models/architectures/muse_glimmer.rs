//! Muse Glimmer, for text alone: Gemma's norms on both sides of each part, of which those behind have an epsilon of
//! their own; norms without a scale of embeddings, queries and keys; a gate of each element that attention gives.
//! Layers with a window are rotated, others are not.

use crate::layers::attention::{GateTensor, HeadGate, QueryKeyNorm};
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, OtherNorms, Result, activation,
    bad, base, read_attention_bias, set_windows, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("MuseGlimmerForConditionalGeneration", spec)];

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(2),
        head_dim: Some(128),
        context: 131_072,
        norm_eps: 1e-5,
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    read_attention_bias(config, &mut spec);
    if let Some(name) = config.field::<String>("hidden_activation")? {
        spec.mlp.activation = activation(&name)?;
    }
    let plain = spec.norm;
    let unscaled = NormSpec { scale: NormScale::One, ..plain };
    spec.norm = NormSpec { scale: NormScale::OnePlusStored, ..plain };
    spec.other_norms = OtherNorms {
        embedding: Some(unscaled),
        outputs: Some(NormSpec { eps: config.number_or("post_norm_eps", 1e-8)?, ..spec.norm }),
        last: Some(plain),
    };
    // It has no scale, and so no tensor of this name.
    spec.embedding_norm = Some("embed_norm");
    spec.block = Block {
        after_attention: Some("post_attention_layernorm"),
        before_mlp: Some("pre_feedforward_layernorm"),
        after_mlp: Some("post_feedforward_layernorm"),
        ..Block::PRE_NORM
    };
    spec.logit_scale = config.number_or("output_multiplier", 0.196_116_14)?;
    spec.logit_softcap = config.positive("final_logit_softcapping")?.or(Some(20.0));
    let last = config.num_hidden_layers - 1;
    let whole = |layer: usize| (last - layer).is_multiple_of(4);
    let windowed = windowed_layers(config, |layer| !whole(layer))?;
    set_windows(config, &mut spec, &windowed, Some(2048))?;
    let rotated = rotated_layers(config, |layer| !whole(layer))?;
    let factor = config.number_or("qk_scale_factor", 3.87)?;
    for (layer, rotated) in spec.attention.iter_mut().zip(rotated) {
        layer.rope = rotated.then_some(0);
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(unscaled));
        // Scaled queries give scaled scores.
        layer.params.scale *= factor;
        layer.gate = Some(HeadGate::sigmoid(GateTensor::Elements("gate_proj")));
    }
    Ok(spec)
}

/// Whether each layer is rotated: those whose base is not 0, which is that of all of them.
fn rotated_layers(config: &HfConfig, default: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
    const FIELD: &str = "layer_rope_theta";
    let layers = config.num_hidden_layers;
    let Some(bases) = config.field::<Vec<f64>>(FIELD)? else {
        return Ok((0..layers).map(default).collect());
    };
    if bases.len() != layers {
        return Err(bad(FIELD, bases.len(), format!("must have a number for {layers} layers")));
    }
    Ok(bases.into_iter().map(|base| base != 0.0).collect())
}
