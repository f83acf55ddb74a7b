//! What most decoders share: the spec that an architecture's own file starts from.

use crate::kernels::paged_attention::AttentionParams;
use crate::kernels::pointwise::Activation;
use crate::layers::attention::{AttentionSpec, QkvTensors};
use crate::layers::mlp::{MlpSpec, MlpTensors};
use crate::layers::norm::NormSpec;
use crate::models::ModelError;
use crate::models::config::rope::RopeDefaults;
use crate::models::config::{HfConfig, bad};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::{Block, Names};

/// What an architecture takes where the file says nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// Key and value heads; `None`: as many as query heads.
    pub(crate) kv_heads: Option<usize>,
    /// Elements of a head; `None`: `hidden_size / num_attention_heads`.
    pub(crate) head_dim: Option<usize>,
    /// Longest sequence.
    pub(crate) context: usize,
    pub(crate) norm_eps: f64,
    pub(crate) tied: bool,
    pub(crate) activation: &'static str,
    pub(crate) rope: RopeDefaults,
}

impl Defaults {
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

/// A decoder with root mean square norms before attention and before a gated feed-forward part,
/// without biases, head norms and windows.
pub(crate) fn base(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec, ModelError> {
    let head_dim = config.head_dim(defaults.head_dim)?;
    let attention = AttentionSpec {
        hidden_size: config.hidden_size,
        num_heads: config.num_attention_heads,
        num_kv_heads: config.num_kv_heads(defaults.kv_heads)?,
        head_dim,
        qkv: QkvTensors::Separate(["q_proj", "k_proj", "v_proj"]),
        output: "o_proj",
        gated: false,
        qkv_bias: false,
        output_bias: false,
        clip: None,
        query_key_norm: None,
        value_norm: None,
        kv_of: None,
        rope: Some(0),
        rope_neighbours: None,
        params: AttentionParams::full(scale(head_dim)),
        sinks: None,
        alibi: None,
        latent: None,
    };
    Ok(DecoderSpec {
        vocab_size: config.vocab_size,
        max_position_embeddings: config.max_position_embeddings.unwrap_or(defaults.context),
        names: Names::COMMON,
        norm: NormSpec::rms(narrow(config.rms_norm_eps.unwrap_or(defaults.norm_eps))),
        block: Block::PRE_NORM,
        tied_embeddings: config.tie_word_embeddings.unwrap_or(defaults.tied),
        head_bias: false,
        learned_positions: None,
        embedding_norm: None,
        turned_matrices: false,
        embedding_scale: 1.0,
        logit_scale: 1.0,
        logit_softcap: None,
        // Layers of different kinds may have different ones, which their architecture reads.
        ropes: if config.has_rope_by_layer_type() {
            Vec::new()
        } else {
            vec![config.rope(head_dim, defaults.rope)?]
        },
        attention: vec![attention; config.num_hidden_layers],
        intermediate_sizes: None,
        layer_inputs: None,
        layer_factor: None,
        mixers: None,
        recurrent: None,
        mlp: MlpSpec {
            hidden_size: config.hidden_size,
            intermediate_size: config.intermediate_size,
            bias: false,
            activation: activation(config.hidden_act.as_deref().unwrap_or(defaults.activation))?,
            gating: None,
            learned_activation: None,
            tensors: MlpTensors::Gated(["gate_proj", "up_proj", "down_proj"]),
        },
        moe: None,
    })
}

/// Sets the biases that `attention_bias` and `mlp_bias` are about.
pub(crate) fn set_biases(spec: &mut DecoderSpec, attention: bool, mlp: bool) {
    for layer in &mut spec.attention {
        layer.qkv_bias = attention;
        layer.output_bias = attention;
    }
    spec.mlp.bias = mlp;
}

/// Norms by mean and variance, whose epsilon has this name.
pub(crate) fn set_layer_norm(
    config: &HfConfig,
    spec: &mut DecoderSpec,
    eps: &'static str,
    bias: bool,
) -> Result<(), ModelError> {
    spec.norm = NormSpec::layer(config.number(eps)?.unwrap_or(1e-5), bias);
    Ok(())
}

/// Whether each layer has a window: as `layer_types` says, else `default` of its index.
pub(crate) fn windowed_layers(
    config: &HfConfig,
    default: impl Fn(usize) -> bool,
) -> Result<Vec<bool>, ModelError> {
    let Some(types) = &config.layer_types else {
        return Ok((0..config.num_hidden_layers).map(default).collect());
    };
    let one = |kind: &String| match kind.as_str() {
        "full_attention" => Ok(false),
        "sliding_attention" => Ok(true),
        _ => Err(bad("layer_types", kind, "supported are full_attention and sliding_attention")),
    };
    types.iter().map(one).collect()
}

/// Whether each layer rotates queries and keys: as `no_rope_layers` says, which in spite of its name
/// is 1 for those that do, else all but every `no_rope_layer_interval`-th.
pub(crate) fn rotated_layers(config: &HfConfig) -> Result<Vec<bool>, ModelError> {
    let layers = config.num_hidden_layers;
    let Some(given) = config.field::<Vec<u8>>("no_rope_layers")?.filter(|all| !all.is_empty())
    else {
        let interval = config.field::<usize>("no_rope_layer_interval")?.unwrap_or(4).max(1);
        return Ok((1..=layers).map(|i| i % interval != 0).collect());
    };
    if given.len() != layers {
        let bound = format!("must have a number for each of {layers} layers");
        return Err(bad("no_rope_layers", given.len(), bound));
    }
    Ok(given.into_iter().map(|one| one != 0).collect())
}

/// Gives the layers that have one the window of `sliding_window`, else `default`.
pub(crate) fn set_windows(
    config: &HfConfig,
    spec: &mut DecoderSpec,
    windowed: &[bool],
    default: Option<usize>,
) -> Result<(), ModelError> {
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

/// What scores are multiplied with in heads of this size.
#[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
pub(crate) fn scale(head_dim: usize) -> f32 {
    1.0 / (head_dim as f32).sqrt()
}

/// The activation of this name.
pub(crate) fn activation(name: &str) -> Result<Activation, ModelError> {
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
