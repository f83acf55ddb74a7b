//! The Llama-like decoder that an architecture's own file starts from, and the changes that several
//! architectures make to it.

use crate::kernels::paged_attention::AttentionParams;
use crate::kernels::pointwise::Activation;
use crate::layers::attention::{AttentionSpec, NormSpan, QkvTensors, QueryKeyNorm};
use crate::layers::mlp::{MlpSpec, MlpTensors};
use crate::layers::norm::NormSpec;
use crate::models::config::{HfConfig, RopeDefaults};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Head, LearnedPositions, Names, OtherNorms};
use crate::models::error::{Result, bad};

/// An architecture's defaults of fields that its files may omit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// Number of key and value heads; `None`: as many as query heads.
    pub(crate) kv_heads: Option<usize>,
    /// Elements of a head; `None`: `hidden_size / num_attention_heads`.
    pub(crate) head_dim: Option<usize>,
    /// Longest sequence.
    pub(crate) context: usize,
    /// Epsilon of RMS norms.
    pub(crate) norm_eps: f64,
    /// Whether the output head shares the embedding's weights.
    pub(crate) tied: bool,
    /// Activation of the feed-forward part.
    pub(crate) activation: &'static str,
    /// The rotary embedding.
    pub(crate) rope: RopeDefaults,
}

impl Defaults {
    /// Defaults of `LlamaConfig`.
    pub(crate) const LLAMA: Self = Self {
        kv_heads: None,
        head_dim: None,
        context: 2048,
        norm_eps: 1e-6,
        tied: false,
        activation: "silu",
        rope: RopeDefaults { theta: 10_000.0, share: 1.0, partial: false },
    };
}

/// A decoder with RMS norms before attention and before a gated feed-forward part, without biases,
/// head norms and windows.
pub(crate) fn base(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec> {
    let attention = attention(config, defaults)?;
    let activation = config.hidden_act.as_deref().unwrap_or(defaults.activation);
    Ok(DecoderSpec {
        vocab_size: config.vocab_size,
        max_position_embeddings: config.max_position_embeddings.unwrap_or(defaults.context),
        longer_contexts: None,
        names: Names::COMMON,
        norm: NormSpec::rms(narrow(config.rms_norm_eps.unwrap_or(defaults.norm_eps))),
        other_norms: OtherNorms::default(),
        norm_gates: None,
        block: Block::PRE_NORM,
        tied_embeddings: config.tie_word_embeddings.unwrap_or(defaults.tied),
        head: Head::Plain,
        before_head: None,
        embedding_rows: None,
        learned_positions: None,
        sinusoids: None,
        token_types: None,
        embedding_norm: None,
        transposed_matrices: false,
        embedding_sum: None,
        embedding_scale: 1.0,
        logit_scale: 1.0,
        logit_scales: None,
        logit_softcap: None,
        prefix_lm: false,
        residuals_from_norms: None,
        residuals_scaled: None,
        learned_sums: None,
        recurrent_block: None,
        pairs: false,
        schedule: None,
        // Architectures whose kinds of layers differ read theirs themselves.
        ropes: if config.has_rope_by_layer_type() {
            Vec::new()
        } else {
            vec![config.rope(attention.head_dim, defaults.rope)?]
        },
        attention: vec![attention; config.num_hidden_layers],
        draft_attention: None,
        intermediate_sizes: None,
        gate_thresholds: None,
        gate_limits: None,
        shared_blocks: None,
        streams: None,
        hyper_connections: None,
        low_rank_path: None,
        layer_inputs: None,
        layer_scale: None,
        mixers: None,
        recurrent: None,
        mlp: MlpSpec {
            hidden_size: config.hidden_size,
            intermediate_size: config.intermediate_size,
            bias: false,
            down_bias: false,
            activation: self::activation(activation)?,
            gating: None,
            gate_factor: 1.0,
            gate_threshold: None,
            learned_activation: None,
            inner_norm: None,
            scales: None,
            tensors: MlpTensors::Gated(["gate_proj", "up_proj", "down_proj"]),
        },
        moe: None,
        picture_layers: 0,
        picture_filler: None,
    })
}

fn attention(config: &HfConfig, defaults: &Defaults) -> Result<AttentionSpec> {
    let head_dim = config.head_dim(defaults.head_dim)?;
    Ok(AttentionSpec {
        hidden_size: config.hidden_size,
        num_heads: config.num_attention_heads,
        num_kv_heads: config.num_kv_heads(defaults.kv_heads)?,
        head_dim,
        qkv: QkvTensors::Separate(["q_proj", "k_proj", "v_proj"]),
        output: "o_proj",
        gate: None,
        qkv_bias: false,
        output_bias: false,
        output_bias_beside: None,
        clip: None,
        query_key_norm: None,
        value_norm: None,
        value_dim: None,
        value_scale: 1.0,
        output_norm: None,
        kv_from_layer: None,
        rope: Some(0),
        interleaved_rope: None,
        params: AttentionParams::full(scale(head_dim)),
        value_bias: None,
        squared_scales: None,
        sinks: None,
        alibi: None,
        routed: None,
        latent: None,
        convolution: None,
        blocks: None,
        difference: None,
    })
}

/// Sets the biases of the attention and of the feed-forward projections.
pub(crate) fn set_biases(spec: &mut DecoderSpec, attention: bool, mlp: bool) {
    for layer in &mut spec.attention {
        layer.qkv_bias = attention;
        layer.output_bias = attention;
    }
    spec.mlp.bias = mlp;
}

/// Sets the biases of the attention projections by `attention_bias`, off by default.
pub(crate) fn read_attention_bias(config: &HfConfig, spec: &mut DecoderSpec) {
    set_biases(spec, config.attention_bias.unwrap_or(false), false);
}

/// Sets the biases by `attention_bias` and `mlp_bias`, both off by default.
pub(crate) fn read_biases(config: &HfConfig, spec: &mut DecoderSpec) {
    let [attention, mlp] = [config.attention_bias, config.mlp_bias];
    set_biases(spec, attention.unwrap_or(false), mlp.unwrap_or(false));
}

/// Replaces RMS norms by layer norms, whose epsilon is the field `eps`.
pub(crate) fn set_layer_norm(
    config: &HfConfig,
    spec: &mut DecoderSpec,
    eps: &'static str,
    bias: bool,
) -> Result<()> {
    spec.norm = NormSpec::layer(config.number_or(eps, 1e-5)?, bias);
    Ok(())
}

/// Normalizes queries and keys of all layers, by norms under their most common names.
pub(crate) fn set_query_key_norm(spec: &mut DecoderSpec, over: NormSpan) {
    let norm = QueryKeyNorm { over, ..QueryKeyNorm::of_heads(spec.norm) };
    for layer in &mut spec.attention {
        layer.query_key_norm = Some(norm);
    }
}

/// Rotates interleaved pairs, in all elements of a head.
pub(crate) fn set_interleaved_rope(spec: &mut DecoderSpec) {
    for layer in &mut spec.attention {
        layer.interleaved_rope = Some(layer.head_dim);
    }
}

/// Removes the rotary embedding from all layers.
pub(crate) fn remove_rope(spec: &mut DecoderSpec) {
    spec.ropes.clear();
    for layer in &mut spec.attention {
        layer.rope = None;
    }
}

/// Learned positions named `name` instead of rotary ones, of which the first is behind the padding token's, as
/// in RoBERTa.
pub(crate) fn set_positions_behind_padding(
    config: &HfConfig,
    name: &'static str,
    spec: &mut DecoderSpec,
) -> Result<()> {
    remove_rope(spec);
    let first = config.field_or("pad_token_id", 1usize)?.saturating_add(1);
    let rows = spec.max_position_embeddings;
    let Some(context) = rows.checked_sub(first).filter(|left| *left > 0) else {
        let bound = format!("must be more than the {first} positions of padding");
        return Err(bad("max_position_embeddings", rows, bound));
    };
    spec.max_position_embeddings = context;
    spec.learned_positions = Some(LearnedPositions { name, first });
    Ok(())
}

/// Whether each layer has a sliding window: by `layer_types`, else by `default` of its index.
pub(crate) fn windowed_layers(
    config: &HfConfig,
    default: impl Fn(usize) -> bool,
) -> Result<Vec<bool>> {
    let kinds = [("full_attention", false), ("sliding_attention", true)];
    let kinds = config.layer_kinds(&kinds, "full_attention and sliding_attention")?;
    Ok(kinds.unwrap_or_else(|| (0..config.num_hidden_layers).map(default).collect()))
}

/// Whether each layer has a rotary embedding: by `no_rope_layers`, which in spite of its name is 1
/// for those that do, else all but every `no_rope_layer_interval`-th.
pub(crate) fn rotated_layers(config: &HfConfig) -> Result<Vec<bool>> {
    let layers = config.num_hidden_layers;
    let Some(given) = config.field::<Vec<u8>>("no_rope_layers")?.filter(|all| !all.is_empty())
    else {
        let interval = config.field_or("no_rope_layer_interval", 4usize)?.max(1);
        return Ok((1..=layers).map(|i| i % interval != 0).collect());
    };
    if given.len() != layers {
        let bound = format!("must have a number for each of {layers} layers");
        return Err(bad("no_rope_layers", given.len(), bound));
    }
    Ok(given.into_iter().map(|one| one != 0).collect())
}

/// Sets the window of the `windowed` layers to `sliding_window`, else to `default`.
pub(crate) fn set_windows(
    config: &HfConfig,
    spec: &mut DecoderSpec,
    windowed: &[bool],
    default: Option<usize>,
) -> Result<()> {
    let window = config.sliding_window.unwrap_or(default);
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        if !windowed {
            continue;
        }
        let Some(window) = window else {
            return Err(bad("sliding_window", "null", "must be a number: some layers have one"));
        };
        layer.params.window = Some(window);
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "an epsilon needs no more than f32")]
fn narrow(eps: f64) -> f32 {
    eps as f32
}

/// The attention scale of heads of this size.
#[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
pub(crate) fn scale(head_dim: usize) -> f32 {
    1.0 / (head_dim as f32).sqrt()
}

/// The factor of embeddings that their size gives.
#[expect(clippy::cast_precision_loss, reason = "hidden sizes are below 2^24")]
pub(crate) fn root(hidden_size: usize) -> f32 {
    (hidden_size as f32).sqrt()
}

/// The activation that `config.json` calls `name`.
pub(crate) fn activation(name: &str) -> Result<Activation> {
    match name {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu" => Ok(Activation::Gelu),
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_fast" => Ok(Activation::GeluTanh),
        "relu" => Ok(Activation::Relu),
        "relu2" => Ok(Activation::ReluSquared),
        other => Err(bad(
            "hidden_act",
            other,
            "supported are silu, swish, gelu, gelu_pytorch_tanh, gelu_new, gelu_fast, relu, relu2",
        )),
    }
}
