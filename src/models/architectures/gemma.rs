//! Gemma 1, 2 and the language models of Gemma 3: norms whose scale is `1 + weight`, embeddings
//! times the root of their size, a tanh GELU, and a tied head.
//!
//! Gemma 2 adds norms behind attention and feed-forward part, soft-caps, a scale of scores of its
//! own and windows on every other layer. Gemma 3 has norms of query and key heads instead of the
//! caps, windows on five layers of six, and another rotary embedding where there is a window.

use crate::kernels::pointwise::Activation;
use crate::layers::attention::QueryKeyNorm;
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases, set_windows, windowed_layers};
use crate::models::config::{Fields, HfConfig};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Names};

const DEFAULTS: Defaults = Defaults {
    head_dim: Some(256),
    context: 8192,
    tied: true,
    activation: "gelu_pytorch_tanh",
    ..Defaults::LLAMA
};

/// What published files of Gemma 3 with pictures leave out of their language part.
pub(crate) fn complete(fields: &mut Fields<'_>) {
    fields.default("vocab_size", 262_208);
    fields.default("num_attention_heads", 8);
}

/// Four norms: of what both parts are given and of what they give.
pub(super) const SANDWICH: Block = Block {
    after_attention: Some("post_attention_layernorm"),
    before_mlp: Some("pre_feedforward_layernorm"),
    after_mlp: Some("post_feedforward_layernorm"),
    ..Block::PRE_NORM
};

/// What `GemmaForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    first(config, &DEFAULTS)
}

fn first(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec, ModelError> {
    config.only("use_bidirectional_attention", false)?;
    let mut spec = base(config, defaults)?;
    set_biases(&mut spec, config.attention_bias.unwrap_or(false), false);
    spec.norm = NormSpec { scale: NormScale::OnePlusStored, ..spec.norm };
    // The first files say `gelu` and mean this.
    if spec.mlp.activation == Activation::Gelu {
        spec.mlp.activation = Activation::GeluTanh;
    }
    #[expect(clippy::cast_precision_loss, reason = "hidden sizes are below 2^24")]
    let scale = (config.hidden_size as f32).sqrt();
    spec.embedding_scale = scale;
    Ok(spec)
}

/// What `Gemma2ForCausalLM` means.
pub(crate) fn spec_2(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = sandwich(config, &Defaults { kv_heads: Some(4), ..DEFAULTS })?;
    let windowed = windowed_layers(config, |layer| layer % 2 == 0)?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    // `null` turns a cap off, an absent field doesn't.
    let cap = |name, default| {
        let cap = config.positive(name)?.unwrap_or(default);
        Ok::<_, ModelError>((!config.says_null(name)).then_some(cap))
    };
    spec.logit_softcap = cap("final_logit_softcapping", 30.0)?;
    let softcap = cap("attn_logit_softcapping", 50.0)?;
    for layer in &mut spec.attention {
        layer.params.softcap = softcap;
    }
    Ok(spec)
}

fn sandwich(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec, ModelError> {
    let mut spec = first(config, defaults)?;
    if let Some(name) = config.field::<String>("hidden_activation")? {
        spec.mlp.activation = crate::models::common::base::activation(&name)?;
    }
    spec.block = SANDWICH;
    let scale = 1.0 / config.positive("query_pre_attn_scalar")?.unwrap_or(256.0).sqrt();
    for layer in &mut spec.attention {
        layer.params.scale = scale;
    }
    Ok(spec)
}

/// What `Gemma3ForCausalLM` means, and `Gemma3ForConditionalGeneration` without pictures.
pub(crate) fn spec_3(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut rope = DEFAULTS.rope;
    rope.theta = 1_000_000.0;
    let defaults = Defaults { kv_heads: Some(4), context: 131_072, rope, ..DEFAULTS };
    let mut spec = sandwich(config, &defaults)?;
    spec.names.roots = Names::INSIDE_OF_MORE;
    let pattern = config.field::<usize>("sliding_window_pattern")?.unwrap_or(6).max(1);
    let windowed = windowed_layers(config, |layer| (layer + 1) % pattern != 0)?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    let local = config.field::<f64>("rope_local_base_freq")?.unwrap_or(10_000.0);
    let head_dim = config.head_dim(defaults.head_dim)?;
    spec.ropes = config.ropes_by_layer_type(head_dim, rope, local)?.to_vec();
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = Some(usize::from(windowed));
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
    }
    spec.logit_softcap = config.positive("final_logit_softcapping")?;
    let softcap = config.positive("attn_logit_softcapping")?;
    for layer in &mut spec.attention {
        layer.params.softcap = softcap;
    }
    Ok(spec)
}
