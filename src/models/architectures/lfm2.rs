//! LFM2: most layers are gated convolutions over three tokens instead of attention; tensors have
//! names of their own; the feed-forward part's size is made of the one in the file. Its form with
//! experts scores them by a sigmoid and has a number for each that counts for the choice alone.

use crate::layers::attention::QueryKeyNorm;
use crate::layers::mlp::MlpTensors;
use crate::layers::moe::{ChoiceBias, ExpertTensors, Score};
use crate::layers::recurrent::{CellSpec, RecurrentSpec, ShortConvSpec};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base};
use crate::models::common::experts::{FIELDS, experts};
use crate::models::config::rope::RopeDefaults;
use crate::models::config::{Fields, HfConfig, bad};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Names};

/// No convolution sees more tokens.
const MAX_TAPS: usize = 64;

/// Its own names of common fields, which count where a file has both.
pub(crate) fn complete(fields: &mut Fields<'_>) {
    fields.replace("tie_word_embeddings", "tie_embedding");
    fields.replace("intermediate_size", "block_ff_dim");
    fields.same("rms_norm_eps", "norm_eps");
}

/// What `Lfm2ForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = common(config)?;
    if config.field("block_auto_adjust_ff_dim")?.unwrap_or(true) {
        spec.mlp.intermediate_size = adjusted(config)?;
    }
    Ok(spec)
}

/// What `Lfm2MoeForCausalLM` means.
pub(crate) fn moe(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = common(config)?;
    let mut moe = experts(config, &spec, &FIELDS)?;
    let dense = config.field("num_dense_layers")?.unwrap_or(2);
    moe.layers = (0..config.num_hidden_layers).map(|layer| layer >= dense).collect();
    moe.router = "feed_forward.gate";
    moe.experts = ExpertTensors::List("feed_forward.experts");
    let biased = config.field("use_expert_bias")?.unwrap_or(true);
    moe.choice_bias =
        biased.then_some(ChoiceBias { name: "feed_forward.expert_bias", one_row: false });
    moe.routing.score = Score::Sigmoid;
    moe.routing.renormalize = config.field("norm_topk_prob")?.unwrap_or(true);
    moe.routing.scale = config.number("routed_scaling_factor")?.unwrap_or(1.0);
    spec.moe = Some(moe);
    Ok(spec)
}

/// What both forms share.
fn common(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let defaults = Defaults {
        kv_heads: Some(8),
        context: 128_000,
        norm_eps: 1e-5,
        tied: true,
        rope: RopeDefaults { theta: 1_000_000.0, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    spec.names = Names { norm: "embedding_norm", mlp: "feed_forward", ..Names::COMMON };
    spec.block = Block {
        before_attention: Some("operator_norm"),
        before_mlp: Some("ffn_norm"),
        ..Block::PRE_NORM
    };
    spec.mlp.tensors = MlpTensors::Gated(["w1", "w3", "w2"]);
    let norm = QueryKeyNorm {
        tensors: ["q_layernorm", "k_layernorm"],
        ..QueryKeyNorm::of_heads(spec.norm)
    };
    for layer in &mut spec.attention {
        layer.output = "out_proj";
        layer.query_key_norm = Some(norm);
    }
    let taps = config.field("conv_L_cache")?.unwrap_or(3);
    if !(2..=MAX_TAPS).contains(&taps) {
        return Err(bad("conv_L_cache", taps, format!("must be 2 to {MAX_TAPS}")));
    }
    let bias = config.field("conv_bias")?.unwrap_or(false);
    spec.recurrent = Some(RecurrentSpec {
        layers: convolutions(config)?,
        name: "conv",
        output: "out_proj",
        output_bias: bias,
        cell: CellSpec::ShortConv(ShortConvSpec { channels: config.hidden_size, taps, bias }),
    });
    Ok(spec)
}

/// Which layers are convolutions: as `layer_types` says, else all that `full_attn_idxs` doesn't name.
fn convolutions(config: &HfConfig) -> Result<Vec<bool>, ModelError> {
    if let Some(types) = &config.layer_types {
        let one = |kind: &String| match kind.as_str() {
            "conv" => Ok(true),
            "full_attention" => Ok(false),
            _ => Err(bad("layer_types", kind, "supported are conv and full_attention")),
        };
        return types.iter().map(one).collect();
    }
    let Some(attention) = config.field::<Vec<usize>>("full_attn_idxs")? else {
        return Ok(vec![false; config.num_hidden_layers]);
    };
    Ok((0..config.num_hidden_layers).map(|layer| !attention.contains(&layer)).collect())
}

/// Elements inside of the feed-forward part: two thirds of those in the file, times a factor, up to
/// the next multiple.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "the reference computes it so; sizes are far below 2^52"
)]
fn adjusted(config: &HfConfig) -> Result<usize, ModelError> {
    let two_thirds = (2 * config.intermediate_size) as f64 / 3.0;
    if config.says_null("block_ffn_dim_multiplier") {
        return Ok(two_thirds as usize);
    }
    let factor = config.field::<f64>("block_ffn_dim_multiplier")?.unwrap_or(1.0);
    if !(factor > 0.0 && factor < 1e3) {
        return Err(bad("block_ffn_dim_multiplier", factor, "must be above 0 and below 1000"));
    }
    let multiple = config.field::<usize>("block_multiple_of")?.unwrap_or(256);
    if multiple == 0 {
        return Err(bad("block_multiple_of", multiple, "must be at least 1"));
    }
    let scaled = (factor * two_thirds.trunc()) as usize;
    Ok(scaled.next_multiple_of(multiple))
}
