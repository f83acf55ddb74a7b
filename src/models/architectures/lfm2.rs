//! LFM2: most layers are gated convolutions over three tokens instead of attention; tensors have
//! names of their own; the feed-forward size is derived from the one in the file. Its mixture of
//! experts has sigmoid scores with a correction bias.

use crate::layers::attention::QueryKeyNorm;
use crate::layers::mlp::MlpTensors;
use crate::layers::moe::ExpertTensors;
use crate::layers::recurrent::{CellSpec, RecurrentSpec, ShortConvSpec};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, ExpertFields, HfConfig, MAX_TAPS, Names, RawFields,
    Result, RopeDefaults, bad, base, experts, set_sigmoid_routing,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Lfm2ForCausalLM", spec).completed_by(complete),
    Architecture::new("Lfm2MoeForCausalLM", moe).completed_by(complete),
    Architecture::new("Lfm2VlForConditionalGeneration", of_text).completed_by(complete),
];

/// LFM2's names of common fields, which win where a file has both.
pub(super) fn complete(fields: &mut RawFields<'_>) {
    fields.replace("tie_word_embeddings", "tie_embedding");
    fields.replace("intermediate_size", "block_ff_dim");
    fields.alias("rms_norm_eps", "norm_eps");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = common(config)?;
    if config.field_or("block_auto_adjust_ff_dim", true)? {
        spec.mlp.intermediate_size = adjusted(config)?;
    }
    Ok(spec)
}

/// The decoder of a model that sees, dense or with experts.
fn of_text(config: &HfConfig) -> Result<DecoderSpec> {
    let kind = config.field::<String>("model_type")?;
    let mut spec = match kind.as_deref() {
        Some("lfm2") => spec(config),
        Some("lfm2_moe") => moe(config),
        _ => Err(bad("model_type", kind, "of the text must be lfm2 or lfm2_moe")),
    }?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    Ok(spec)
}

fn moe(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = common(config)?;
    let mut moe = experts(config, &spec, &ExpertFields::COMMON)?;
    let dense = config.field_or("num_dense_layers", 2)?;
    moe.layers = (0..config.num_hidden_layers).map(|layer| layer >= dense).collect();
    moe.router = "feed_forward.gate";
    moe.experts = ExpertTensors::List("feed_forward.experts");
    set_sigmoid_routing(config, &mut moe, "feed_forward.expert_bias", true)?;
    if !config.field_or("use_expert_bias", true)? {
        moe.correction_bias = None;
    }
    spec.moe = Some(moe);
    Ok(spec)
}

/// The part that both classes share.
fn common(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(8),
        context: 128_000,
        norm_eps: 1e-5,
        tied: true,
        rope: RopeDefaults { theta: 1_000_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    rename(&mut spec);
    let norm = QueryKeyNorm {
        tensors: ["q_layernorm", "k_layernorm"],
        ..QueryKeyNorm::of_heads(spec.norm)
    };
    for layer in &mut spec.attention {
        layer.output = "out_proj";
        layer.query_key_norm = Some(norm);
    }
    spec.recurrent = Some(short_conv(config, convolutions(config)?, 3)?);
    Ok(spec)
}

/// LFM's names of tensors.
pub(super) fn rename(spec: &mut DecoderSpec) {
    spec.names = Names { norm: "embedding_norm", mlp: "feed_forward", ..Names::COMMON };
    spec.block = Block::pre_norm("operator_norm", "ffn_norm");
    spec.mlp.tensors = MlpTensors::Gated(["w1", "w3", "w2"]);
}

/// Gated convolutions in these layers, over so many tokens by default.
pub(super) fn short_conv(
    config: &HfConfig,
    layers: Vec<bool>,
    taps: usize,
) -> Result<RecurrentSpec> {
    let taps = config.size_or("conv_L_cache", taps, 2..=MAX_TAPS)?;
    let bias = config.field_or("conv_bias", false)?;
    Ok(RecurrentSpec {
        beside_attention: None,
        layers,
        name: "conv",
        output: "out_proj",
        output_bias: bias,
        cell: CellSpec::ShortConv(ShortConvSpec { channels: config.hidden_size, taps, bias }),
    })
}

/// Whether each layer is a convolution: by `layer_types`, else all that `full_attn_idxs` doesn't
/// name.
fn convolutions(config: &HfConfig) -> Result<Vec<bool>> {
    let kinds = [("conv", true), ("full_attention", false)];
    if let Some(layers) = config.layer_kinds(&kinds, "conv and full_attention")? {
        return Ok(layers);
    }
    let Some(attention) = config.field::<Vec<usize>>("full_attn_idxs")? else {
        return Ok(vec![false; config.num_hidden_layers]);
    };
    Ok((0..config.num_hidden_layers).map(|layer| !attention.contains(&layer)).collect())
}

/// Size of the feed-forward part: two thirds of the file's, times a factor, rounded up to a
/// multiple.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the reference computes it so; sizes are far below 2^52"
)]
fn adjusted(config: &HfConfig) -> Result<usize> {
    let two_thirds = (2 * config.intermediate_size) as f64 / 3.0;
    if config.is_null("block_ffn_dim_multiplier") {
        return Ok(two_thirds as usize);
    }
    let factor = config.field_or("block_ffn_dim_multiplier", 1.0)?;
    if !(factor > 0.0 && factor < 1e3) {
        return Err(bad("block_ffn_dim_multiplier", factor, "must be above 0 and below 1000"));
    }
    let multiple = config.field_or("block_multiple_of", 256)?;
    if multiple == 0 {
        return Err(bad("block_multiple_of", multiple, "must be at least 1"));
    }
    let scaled = (factor * two_thirds.trunc()) as usize;
    Ok(scaled.next_multiple_of(multiple))
}
