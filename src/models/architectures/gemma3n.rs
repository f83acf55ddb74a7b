//! Gemma 3n: Gemma 4's attention with one size of heads, norms whose scale is stored as it is, four
//! streams of hidden states of which layers compute one, a path of low rank beside attention, and
//! per-layer embeddings that all but the first stream get. In the first layers most gates of the
//! feed-forward part are zero.

use candle_core::cpu::erf::erf_inv;

use super::gemma::SANDWICH;
use super::gemma4::share_kv;
use crate::layers::attention::QueryKeyNorm;
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, LayerInputs, MAX_SIZE, Names, RawFields, Result,
    RopeDefaults, StreamsSpec, bad, base, check_size, read_attention_bias, root, set_windows,
    windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Gemma3nForCausalLM", spec).completed_by(complete),
    Architecture::new("Gemma3nForConditionalGeneration", spec).completed_by(complete),
];

/// The most streams of hidden states.
const MAX_STREAMS: usize = 64;

/// Sizes of the feed-forward parts are one number or one for each layer.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("hidden_act", "hidden_activation");
    fields.first_of("intermediate_size", "intermediate_sizes");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(2),
        head_dim: Some(256),
        context: 32_768,
        tied: true,
        activation: "gelu_pytorch_tanh",
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    spec.block = SANDWICH;
    spec.embedding_scale = root(config.hidden_size);
    let softcap = "final_logit_softcapping";
    if !config.is_null(softcap) {
        spec.logit_softcap = Some(config.positive(softcap)?.unwrap_or(30.0));
    }
    read_attention_bias(config, &mut spec);
    let windowed = windowed_layers(config, |layer| !(layer + 1).is_multiple_of(5))?;
    set_windows(config, &mut spec, &windowed, Some(512))?;
    let rope = RopeDefaults { theta: 1_000_000.0, ..Defaults::LLAMA.rope };
    let local = config.field_or("rope_local_base_freq", 10_000.0)?;
    let head_dim = config.head_dim(defaults.head_dim)?;
    spec.ropes = config.ropes_by_layer_type(head_dim, rope, local)?.to_vec();
    let value_norm = NormSpec { scale: NormScale::One, ..spec.norm };
    for (layer, windowed) in spec.attention.iter_mut().zip(&windowed) {
        layer.rope = Some(usize::from(*windowed));
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
        layer.value_norm = Some(value_norm);
        layer.params.scale = 1.0;
    }
    share_kv(config, &mut spec, &windowed)?;
    spec.layer_inputs = Some(LayerInputs {
        width: config.size_or("hidden_size_per_layer_input", 256, 1..=MAX_SIZE)?,
        vocab_size: config.size_or("vocab_size_per_layer_input", 262_144, 1..=MAX_SIZE)?,
        activation: spec.mlp.activation,
    });
    let count = config.size_or("altup_num_inputs", 4, 1..=MAX_STREAMS)?;
    let active = config.size_or("altup_active_idx", 0, 0..=count - 1)?;
    let scaled = config.field_or("altup_correct_scale", true)?;
    spec.streams = Some(StreamsSpec { count, active, scaled });
    spec.low_rank_path = Some(config.size_or("laurel_rank", 64, 1..=MAX_SIZE)?);
    set_feed_forward(config, &mut spec)?;
    Ok(spec)
}

/// Sets sizes and sparsity of each layer's feed-forward part.
fn set_feed_forward(config: &HfConfig, spec: &mut DecoderSpec) -> Result<()> {
    let layers = config.num_hidden_layers;
    let bound = format!("must have a number for each of {layers} layers");
    if let Some(sizes) = config.field::<Vec<usize>>("intermediate_sizes")? {
        if sizes.len() != layers {
            return Err(bad("intermediate_size", sizes.len(), bound));
        }
        for size in &sizes {
            check_size("intermediate_size", *size, 1..=MAX_SIZE)?;
        }
        spec.intermediate_sizes = Some(sizes);
    }
    // Files of the GGUF format have thresholds instead of shares.
    if let Some(thresholds) = config.field::<Vec<Option<f32>>>("gate_thresholds")? {
        if thresholds.len() != layers {
            return Err(bad("gate_thresholds", thresholds.len(), bound));
        }
        spec.gate_thresholds = Some(thresholds);
        return Ok(());
    }
    let name = "activation_sparsity_pattern";
    let sparse = if layers > 10 { 10 } else { 0 };
    let shares = match config.field::<Vec<f64>>(name)? {
        Some(shares) => shares,
        None => (0..layers).map(|layer| if layer < sparse { 0.95 } else { 0.0 }).collect(),
    };
    if shares.len() != layers {
        return Err(bad(name, shares.len(), bound));
    }
    let threshold = |share: f64| match share {
        0.0 => Ok(None),
        share if share > 0.0 && share < 1.0 => Ok(Some(quantile(share))),
        _ => Err(bad(name, share, "must be at least 0 and less than 1")),
    };
    spec.gate_thresholds = Some(shares.into_iter().map(threshold).collect::<Result<_>>()?);
    Ok(())
}

/// The standard deviations above the mean below which this share of a normal distribution is.
#[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
fn quantile(share: f64) -> f32 {
    (std::f64::consts::SQRT_2 * erf_inv(2.0 * share - 1.0)) as f32
}
