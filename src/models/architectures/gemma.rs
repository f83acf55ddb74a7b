//! Gemma 1, 2 and the language models of Gemma 3: norms whose scale is `1 + weight`, embeddings
//! times the root of their size, tanh-approximated GELU, and a tied head.
//!
//! Gemma 2 adds norms after attention and feed-forward part, soft-caps, an attention scale of its
//! own and sliding windows on every other layer. Gemma 3 has norms of query and key heads instead
//! of the caps, and windows on five layers of six, whose rotary embedding is another one. VaultGemma
//! is Gemma 2 without the norms after both parts. PaliGemma's language models are prefix language models:
//! Beyer et al., "PaliGemma: A versatile 3B VLM for transfer", 2024.

use crate::kernels::pointwise::Activation;
use crate::layers::attention::QueryKeyNorm;
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, HfConfig, Names, RawFields, Result, RopeDefaults,
    activation, bad, base, read_attention_bias, root, set_windows, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("GemmaForCausalLM", spec),
    Architecture::new("Gemma2ForCausalLM", spec_2),
    Architecture::new("VaultGemmaForCausalLM", spec_vault),
    Architecture::new("Gemma3ForCausalLM", spec_3),
    Architecture::new("Gemma3ForConditionalGeneration", spec_3).completed_by(complete),
    Architecture::new("PaliGemmaForConditionalGeneration", spec_pali).completed_by(complete_pali),
];

const DEFAULTS: Defaults = Defaults {
    head_dim: Some(256),
    context: 8192,
    tied: true,
    activation: "gelu_pytorch_tanh",
    ..Defaults::LLAMA
};

/// Fields that published multimodal files of Gemma 3 leave out of `text_config`.
fn complete(fields: &mut RawFields<'_>) {
    fields.default("vocab_size", 262_208);
    fields.default("num_attention_heads", 8);
}

/// The same of PaliGemma.
fn complete_pali(fields: &mut RawFields<'_>) {
    fields.default("vocab_size", 257_152);
    fields.default("model_type", "gemma");
}

/// Norms before and after both parts of a layer.
pub(super) const SANDWICH: Block = Block {
    after_attention: Some("post_attention_layernorm"),
    before_mlp: Some("pre_feedforward_layernorm"),
    after_mlp: Some("post_feedforward_layernorm"),
    ..Block::PRE_NORM
};

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    first(config, &DEFAULTS)
}

/// The part that Gemma 1, 2 and 3 share.
fn first(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec> {
    let mut spec = base(config, defaults)?;
    read_attention_bias(config, &mut spec);
    spec.norm = NormSpec { scale: NormScale::OnePlusStored, ..spec.norm };
    // The first files say `gelu` for the approximation.
    if spec.mlp.activation == Activation::Gelu {
        spec.mlp.activation = Activation::GeluTanh;
    }
    spec.embedding_scale = root(config.hidden_size);
    Ok(spec)
}

fn spec_2(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = sandwich(config, &Defaults { kv_heads: Some(4), ..DEFAULTS })?;
    let windowed = windowed_layers(config, |layer| layer % 2 == 0)?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    // `null` turns a cap off, an absent field doesn't.
    let cap = |name, default| (!config.is_null(name)).then_some(default);
    let name = "final_logit_softcapping";
    spec.logit_softcap = config.positive(name)?.or(cap(name, 30.0));
    let name = "attn_logit_softcapping";
    let softcap = config.positive(name)?.or(cap(name, 50.0));
    for layer in &mut spec.attention {
        layer.params.softcap = softcap;
    }
    Ok(spec)
}

fn spec_vault(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec_2(config)?;
    spec.block = Block { after_attention: None, after_mlp: None, ..spec.block };
    Ok(spec)
}

/// The decoders of PaliGemma: Gemma 1, of PaliGemma 2 Gemma 2, whose prompts see themselves.
fn spec_pali(config: &HfConfig) -> Result<DecoderSpec> {
    let kind = config.field::<String>("model_type")?;
    let mut spec = match kind.as_deref() {
        Some("gemma") => spec(config),
        Some("gemma2") => spec_2(config),
        _ => Err(bad("model_type", kind, "of the text: supported are gemma, gemma2")),
    }?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    spec.prefix_lm = true;
    Ok(spec)
}

/// The part that Gemma 2 and 3 share.
fn sandwich(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec> {
    let mut spec = first(config, defaults)?;
    if let Some(name) = config.field::<String>("hidden_activation")? {
        spec.mlp.activation = activation(&name)?;
    }
    spec.block = SANDWICH;
    let scale = 1.0 / config.positive("query_pre_attn_scalar")?.unwrap_or(256.0).sqrt();
    for layer in &mut spec.attention {
        layer.params.scale = scale;
    }
    Ok(spec)
}

/// The decoder of `Gemma3ForCausalLM`, and of `Gemma3ForConditionalGeneration` for text alone.
fn spec_3(config: &HfConfig) -> Result<DecoderSpec> {
    let rope = RopeDefaults { theta: 1_000_000.0, ..DEFAULTS.rope };
    let defaults = Defaults { kv_heads: Some(4), context: 131_072, rope, ..DEFAULTS };
    let mut spec = sandwich(config, &defaults)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    let pattern = config.field_or("sliding_window_pattern", 6usize)?.max(1);
    let windowed = windowed_layers(config, |layer| (layer + 1) % pattern != 0)?;
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    let local = config.field_or("rope_local_base_freq", 10_000.0)?;
    let head_dim = config.head_dim(defaults.head_dim)?;
    spec.ropes = config.ropes_by_layer_type(head_dim, rope, local)?.to_vec();
    spec.logit_softcap = config.positive("final_logit_softcapping")?;
    let softcap = config.positive("attn_logit_softcapping")?;
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = Some(usize::from(windowed));
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
        layer.params.softcap = softcap;
    }
    Ok(spec)
}
