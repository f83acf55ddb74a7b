//! Rows of the table of architectures with layers that have a recurrence instead of attention, and
//! what their files say otherwise.

use super::config::{HeadCounts, ModelKeys};
use super::families::{Config, Done, SIGMOID, set, set_experts};
use super::names::{Architecture, Part};
use super::parts::LLAMA;
use super::value::Value;

/// The layers of LFM2.
const LFM2_LAYERS: &[Part] = &[
    ("attn_norm", "operator_norm"),
    ("ffn_norm", "ffn_norm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.out_proj"),
    ("attn_q_norm", "self_attn.q_layernorm"),
    ("attn_k_norm", "self_attn.k_layernorm"),
    ("shortconv.in_proj", "conv.in_proj"),
    ("shortconv.conv", "conv.conv"),
    ("shortconv.out_proj", "conv.out_proj"),
    ("ffn_gate", "feed_forward.w1"),
    ("ffn_up", "feed_forward.w3"),
    ("ffn_down", "feed_forward.w2"),
];

const LFM2_EXPERTS: &[Part] = &[
    ("ffn_gate_inp", "feed_forward.gate"),
    ("exp_probs_b", "feed_forward.expert_bias!"),
    ("ffn_gate_exps", "feed_forward.experts.*.w1"),
    ("ffn_up_exps", "feed_forward.experts.*.w3"),
    ("ffn_down_exps", "feed_forward.experts.*.w2"),
];

const LFM2: Architecture = Architecture {
    gguf: "lfm2",
    class: "Lfm2ForCausalLM",
    model_type: "lfm2",
    around: &[("token_embd_norm", "model.embedding_norm")],
    blocks: &[LFM2_LAYERS],
    norm_eps: ("attention.layer_norm_rms_epsilon", "norm_eps"),
    heads,
    more: lfm2,
    ..LLAMA
};

/// The rows.
pub(super) const RECURRENT: &[Architecture] = &[
    LFM2,
    Architecture {
        gguf: "lfm2moe",
        class: "Lfm2MoeForCausalLM",
        model_type: "lfm2_moe",
        blocks: &[LFM2_LAYERS, LFM2_EXPERTS],
        more: lfm2_moe,
        ..LFM2
    },
];

/// Key heads of each layer: those without any have a recurrence.
pub(super) fn key_heads(keys: &ModelKeys<'_>) -> Result<Vec<u64>, String> {
    let end = "attention.head_count_kv";
    match keys.per_layer(end, Value::as_u64)? {
        Some(counts) => Ok(counts),
        None => Ok(vec![keys.required(end)?; keys.layers()?]),
    }
}

/// The heads of layers with attention.
pub(super) fn heads(keys: &ModelKeys<'_>) -> Result<HeadCounts, String> {
    let counts = key_heads(keys)?;
    let mut others = counts.iter().filter(|count| **count > 0);
    let query = keys.required("attention.head_count")?;
    let first = others.next().copied().unwrap_or(query);
    if others.any(|count| *count != first) {
        return Err(format!("layers have {counts:?} key heads, expected one number or 0"));
    }
    keys.heads_of(query, first)
}

fn lfm2(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    if let Some(window) = keys.count("attention.sliding_window")?.filter(|window| *window > 0) {
        return Err(format!("an LFM2 with a window, of {window} tokens, is not supported"));
    }
    let kind = |heads: u64| if heads == 0 { "conv" } else { "full_attention" };
    let kinds: Vec<&str> = key_heads(keys)?.into_iter().map(kind).collect();
    set(config, "layer_types", kinds);
    set(config, "conv_L_cache", keys.required("shortconv.l_cache")?);
    let biased = |tensor: &super::header::TensorInfo| tensor.name.ends_with("shortconv.conv.bias");
    set(config, "conv_bias", keys.tensors().iter().any(biased));
    // The file says what it is in the end.
    set(config, "block_auto_adjust_ff_dim", false);
    Ok(())
}

fn lfm2_moe(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    lfm2(keys, config)?;
    set_experts(keys, config, SIGMOID)?;
    set(config, "num_dense_layers", keys.count("leading_dense_block_count")?.unwrap_or(0));
    set(config, "norm_topk_prob", true);
    let scale = keys.float("expert_weights_scale")?.filter(|scale| *scale != 0.0);
    set(config, "routed_scaling_factor", scale.unwrap_or(1.0));
    Ok(())
}
