//! Rows of the table of architectures with layers that have a recurrence instead of attention, and
//! what their files say otherwise.

use super::architecture::{Architecture, Part};
use super::families::{Config, Done, SIGMOID, qwen2_moe, set, set_experts};
use super::header::TensorInfo;
use super::keys::{HeadCounts, ModelKeys};
use super::parts::{
    ATTENTION, EXPERTS, GATED_MLP, HEAD_APART, HEAD_NORMS, LLAMA, QWEN_SHARED_EXPERT,
};
use super::rope;
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

/// The layers of Qwen3-Next and Qwen3.5, but for feed-forward parts.
const DELTA_LAYERS: &[Part] = &[
    ("attn_norm", "input_layernorm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("attn_qkv", "linear_attn.in_proj_qkv"),
    ("attn_gate", "linear_attn.in_proj_z"),
    ("ssm_beta", "linear_attn.in_proj_b"),
    ("ssm_alpha", "linear_attn.in_proj_a"),
    // Of Qwen3-Next; the first of its first files alone.
    ("ssm_in", "linear_attn.in_proj_qkvz"),
    ("ssm_ba", "linear_attn.in_proj_ba"),
    ("ssm_conv1d", "linear_attn.conv1d"),
    ("ssm_dt", "linear_attn.dt_bias!"),
    ("ssm_a", "linear_attn.A!"),
    ("ssm_norm", "linear_attn.norm"),
    ("ssm_out", "linear_attn.out_proj"),
];

const QWEN3_NEXT: Architecture = Architecture {
    gguf: "qwen3next",
    class: "Qwen3NextForCausalLM",
    model_type: "qwen3_next",
    blocks: &[ATTENTION, HEAD_NORMS, DELTA_LAYERS, EXPERTS, QWEN_SHARED_EXPERT],
    norms_plus_one: true,
    draft_head: Some(HEAD_APART),
    more: qwen3_next,
    ..LLAMA
};

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

/// The rows of architectures with short convolutions or delta rules.
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
    QWEN3_NEXT,
    Architecture {
        gguf: "qwen35",
        class: "Qwen3_5ForCausalLM",
        also: &["Qwen3_5ForConditionalGeneration"],
        model_type: "qwen3_5_text",
        blocks: &[ATTENTION, HEAD_NORMS, DELTA_LAYERS, GATED_MLP],
        more: qwen3_5,
        ..QWEN3_NEXT
    },
    Architecture {
        gguf: "qwen35moe",
        class: "Qwen3_5MoeForCausalLM",
        also: &["Qwen3_5MoeForConditionalGeneration"],
        model_type: "qwen3_5_moe_text",
        more: |keys, config| {
            qwen2_moe(keys, config)?;
            qwen3_5(keys, config)
        },
        ..QWEN3_NEXT
    },
];

/// Key heads of each layer: those without any have a recurrence.
pub(super) fn key_heads(keys: &ModelKeys<'_>) -> Result<Vec<u64>, String> {
    keys.each_layer("attention.head_count_kv")
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
    let biased = |tensor: &TensorInfo| tensor.name.ends_with("shortconv.conv.bias");
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

/// What Qwen3-Next and Qwen3.5 share.
fn delta_rule(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let told = keys.per_layer("attention.recurrent_layers", Value::as_bool)?;
    let interval = keys.count("full_attention_interval")?.unwrap_or(4).max(1);
    let layers = keys.layers()? as u64;
    let recurrent =
        told.unwrap_or_else(|| (1..=layers).map(|layer| layer % interval != 0).collect());
    let kind = |recurrent| if recurrent { "linear_attention" } else { "full_attention" };
    let kinds: Vec<&str> = recurrent.into_iter().map(kind).collect();
    set(config, "layer_types", kinds);
    let (inner, values) = (keys.required("ssm.inner_size")?, keys.required("ssm.time_step_rank")?);
    if !inner.is_multiple_of(values) {
        let key = keys.key("ssm.inner_size");
        return Err(format!("metadata `{key}` is {inner}, expected {values} heads of equal size"));
    }
    set(config, "linear_num_value_heads", values);
    set(config, "linear_value_head_dim", inner / values);
    set(config, "linear_num_key_heads", keys.required("ssm.group_count")?);
    set(config, "linear_key_head_dim", keys.required("ssm.state_size")?);
    set(config, "linear_conv_kernel_dim", keys.required("ssm.conv_kernel")?);
    let biased = |tensor: &TensorInfo| tensor.name.ends_with(".attn_q.bias");
    set(config, "attention_bias", keys.tensors().iter().any(biased));
    Ok(())
}

fn qwen3_next(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    qwen2_moe(keys, config)?;
    set(config, "norm_topk_prob", true);
    delta_rule(keys, config)
}

fn qwen3_5(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    delta_rule(keys, config)?;
    // Conversion puts the first value heads of all key heads first, then the second ones.
    set(config, "linear_value_heads_tiled", true);
    rope::set_sections(keys, config)
}
