//! Llama 2, 3, 3.1, 3.2 and all that is shaped like them: the base that the others differ from.

use super::ModelError;
use super::config::{HfConfig, bad};
use super::decoder::DecoderSpec;
use crate::kernels::gated::Activation;
use crate::kernels::paged_attention::AttentionParams;
use crate::layers::attention::AttentionSpec;
use crate::layers::mlp::MlpSpec;

/// What `LlamaForCausalLM` means.
pub(super) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let bias = config.attention_bias.unwrap_or(false);
    let mut spec = base(config, config.num_attention_heads, 2048)?;
    for layer in &mut spec.attention {
        layer.qkv_bias = bias;
        layer.output_bias = bias;
    }
    spec.mlp.bias = config.mlp_bias.unwrap_or(false);
    Ok(spec)
}

/// A decoder without biases, head norms and windows; KV heads and context as given where the file
/// says nothing.
pub(super) fn base(
    config: &HfConfig,
    default_kv_heads: usize,
    default_context: usize,
) -> Result<DecoderSpec, ModelError> {
    let head_dim = config.head_dim()?;
    let attention = AttentionSpec {
        hidden_size: config.hidden_size,
        num_heads: config.num_attention_heads,
        num_kv_heads: config.num_kv_heads(default_kv_heads)?,
        head_dim,
        qkv_bias: false,
        output_bias: false,
        head_norm_eps: None,
        params: AttentionParams { scale: scale(head_dim), softcap: None, window: None },
    };
    Ok(DecoderSpec {
        vocab_size: config.vocab_size,
        max_position_embeddings: config.max_position_embeddings.unwrap_or(default_context),
        norm_eps: norm_eps(config),
        tied_embeddings: config.tie_word_embeddings,
        rope: config.rope(head_dim)?,
        attention: vec![attention; config.num_hidden_layers],
        mlp: MlpSpec {
            hidden_size: config.hidden_size,
            intermediate_size: config.intermediate_size,
            bias: false,
            activation: activation(config)?,
        },
    })
}

#[expect(clippy::cast_possible_truncation, reason = "an epsilon needs no more than f32")]
pub(super) fn norm_eps(config: &HfConfig) -> f32 {
    config.rms_norm_eps.unwrap_or(1e-6) as f32
}

#[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
fn scale(head_dim: usize) -> f32 {
    1.0 / (head_dim as f32).sqrt()
}

fn activation(config: &HfConfig) -> Result<Activation, ModelError> {
    match config.hidden_act.as_deref().unwrap_or("silu") {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu_pytorch_tanh" | "gelu_new" => Ok(Activation::GeluTanh),
        other => {
            Err(bad("hidden_act", other, "supported are silu, swish, gelu_pytorch_tanh, gelu_new"))
        }
    }
}
