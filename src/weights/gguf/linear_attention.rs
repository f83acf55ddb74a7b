//! Rows of the table of architectures with linear attention beside attention that keeps latent vectors or
//! whole heads, and what their files say otherwise.

use super::architecture::{Architecture, Outer, Part};
use super::families::{Config, Done, SIGMOID, SOFTMAX, set, set_experts};
use super::keys::{HeadCounts, ModelKeys};
use super::latent;
use super::other_layers::LATENT_ATTENTION;
use super::parts::{
    ATTENTION, EXPERTS, GATED_MLP, LLAMA, OUTER, PRE_NORMS, SHARED_EXPERTS, block_sparse_experts,
};
use super::with_experts::{set_scale, set_sparse_layers};

/// Kimi Delta Attention of this name, but for the projections that attention has too. `ssm_a` is the rate
/// itself, not the logarithm that checkpoints have.
macro_rules! channel_delta_rule {
    ($name:literal, $decay:literal, $gate:literal) => {
        &[
            ("ssm_conv1d_q", concat!($name, ".q_conv1d")),
            ("ssm_conv1d_k", concat!($name, ".k_conv1d")),
            ("ssm_conv1d_v", concat!($name, ".v_conv1d")),
            ("ssm_beta", concat!($name, ".b_proj")),
            ("ssm_f_a", concat!($name, $decay)),
            ("ssm_f_b", concat!($name, ".f_b_proj")),
            ("ssm_g_a", concat!($name, $gate)),
            ("ssm_g_b", concat!($name, ".g_b_proj")),
            ("ssm_a", concat!($name, ".A!")),
            ("ssm_dt", concat!($name, ".dt_bias!")),
            ("ssm_norm", concat!($name, ".o_norm")),
        ]
    };
}

/// Keys and values of Kimi Linear's linear attention; queries and outputs are those of latent attention.
const KIMI_KEYS: &[Part] = &[("attn_k", "self_attn.k_proj"), ("attn_v", "self_attn.v_proj")];

const KIMI_EXPERTS: &[Part] = &[
    ("ffn_gate_inp", "block_sparse_moe.gate"),
    ("exp_probs_b", "block_sparse_moe.gate.e_score_correction_bias!"),
    ("ffn_gate_shexp", "block_sparse_moe.shared_experts.gate_proj"),
    ("ffn_up_shexp", "block_sparse_moe.shared_experts.up_proj"),
    ("ffn_down_shexp", "block_sparse_moe.shared_experts.down_proj"),
];

/// The attention of Ling's hybrids: latent, with a gate for each head, and what linear attention shares
/// names with.
const BAILING_ATTENTION: &[Part] = &[
    ("attn_q", "attention.q_proj"),
    ("attn_k", "attention.k_proj"),
    ("attn_v", "attention.v_proj"),
    ("attn_q_a", "attention.q_a_proj"),
    ("attn_q_a_norm", "attention.q_a_layernorm"),
    ("attn_q_b", "attention.q_b_proj"),
    ("attn_kv_a_mqa", "attention.kv_a_proj_with_mqa"),
    ("attn_kv_a_norm", "attention.kv_a_layernorm"),
    ("attn_kv_b", "attention.kv_b_proj"),
    ("attn_k_b", "attention.k_b_proj"),
    ("attn_v_b", "attention.v_b_proj"),
    ("attn_gate", "attention.g_proj"),
    ("attn_output", "attention.dense"),
    ("exp_probs_b", "mlp.gate.expert_bias!"),
];

/// The rows.
pub(super) const LINEAR_ATTENTION: &[Architecture] = &[
    Architecture {
        gguf: "kimi-linear",
        class: "KimiLinearForCausalLM",
        model_type: "kimi_linear",
        blocks: &[
            LATENT_ATTENTION,
            KIMI_KEYS,
            channel_delta_rule!("self_attn", ".f_a_proj", ".g_a_proj"),
            PRE_NORMS,
            GATED_MLP,
            KIMI_EXPERTS,
            block_sparse_experts!("w1", "w3", "w2"),
        ],
        heads: latent_heads,
        more: kimi_linear,
        ..LLAMA
    },
    Architecture {
        gguf: "bailingmoe3",
        class: "BailingHybridForCausalLM",
        model_type: "bailing_hybrid",
        outer: Outer { embedding: "model.word_embeddings", ..OUTER },
        blocks: &[
            BAILING_ATTENTION,
            channel_delta_rule!("attention", ".f_proj", ".g_proj"),
            PRE_NORMS,
            GATED_MLP,
            EXPERTS,
            SHARED_EXPERTS,
        ],
        heads: latent_heads,
        more: bailing_3,
        ..LLAMA
    },
    Architecture {
        gguf: "minimax-01",
        class: "MiniMaxText01ForCausalLM",
        also: &["MiniMaxForCausalLM", "MiniMaxM1ForCausalLM"],
        model_type: "minimax_text_01",
        blocks: &[
            ATTENTION,
            PRE_NORMS,
            &[
                ("attn_qkv", "self_attn.qkv_proj"),
                ("attn_gate", "self_attn.output_gate"),
                ("attn_norm_2", "self_attn.norm"),
                ("ffn_gate_inp", "block_sparse_moe.gate"),
            ],
            block_sparse_experts!("w1", "w3", "w2"),
        ],
        more: minimax,
        ..LLAMA
    },
];

/// The heads of latent attention, in files that count those of keys layer by layer.
fn latent_heads(keys: &ModelKeys<'_>) -> Result<HeadCounts, String> {
    let small = |count: u64| usize::try_from(count).map_err(|error| error.to_string());
    let query = small(keys.required("attention.head_count")?)?;
    let dim = small(keys.required("rope.dimension_count")?)?;
    Ok(HeadCounts { query, key: query, dim, value: dim, rotary: dim })
}

/// The kinds of layers, by whether they have key heads, and the sizes of linear attention.
fn set_linear_layers(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let linear: Vec<bool> =
        keys.each_layer("attention.head_count_kv")?.into_iter().map(|heads| heads == 0).collect();
    set_kinds(config, &linear);
    set(config, "linear_head_dim", keys.required("kda.head_dim")?);
    set(config, "linear_conv_kernel_dim", keys.required("ssm.conv_kernel")?);
    if let Some(layer) = linear.iter().position(|linear| *linear) {
        let rates = keys.tensor(&format!("blk.{layer}.ssm_a"));
        let heads = rates.map(|rates| rates.shape.iter().product::<usize>());
        let heads = heads.ok_or_else(|| format!("tensor `blk.{layer}.ssm_a` is missing"))?;
        set(config, "linear_num_heads", heads);
    }
    Ok(())
}

fn set_kinds(config: &mut Config, linear: &[bool]) {
    let kind = |linear: &bool| if *linear { "linear_attention" } else { "full_attention" };
    set(config, "layer_types", linear.iter().map(kind).collect::<Vec<_>>());
}

/// Latent attention, and experts with sigmoid scores from some layer on.
fn set_latent_and_experts(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let sizes = ["attention.key_length_mla", "attention.value_length_mla"];
    let [key, value] = sizes.map(|end| keys.required(end));
    latent::attention(keys, config, [key?, value?])?;
    set_experts(keys, config, SIGMOID)?;
    set_scale(keys, config)?;
    set(config, "n_group", keys.count("expert_group_count")?.unwrap_or(1).max(1));
    set(config, "topk_group", keys.count("expert_group_used_count")?.unwrap_or(1).max(1));
    set_sparse_layers(keys, config)
}

fn kimi_linear(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    set_linear_layers(keys, config)?;
    set_latent_and_experts(keys, config)?;
    set(config, "n_shared_experts", keys.count("expert_shared_count")?.unwrap_or(0));
    set(config, "norm_topk_prob", keys.bool("expert_weights_norm")?.unwrap_or(true));
    Ok(())
}

fn bailing_3(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    set_linear_layers(keys, config)?;
    set_latent_and_experts(keys, config)?;
    let inner = config.get("moe_intermediate_size").and_then(serde_json::Value::as_u64);
    let inner = inner.ok_or("there are no experts")?;
    let end = "expert_shared_feed_forward_length";
    let shared = match keys.count(end)?.filter(|shared| *shared > 0) {
        Some(shared) if !shared.is_multiple_of(inner) => {
            let key = keys.key(end);
            return Err(format!("metadata `{key}` is {shared}, expected a multiple of {inner}"));
        }
        Some(shared) => {
            keys.count("expert_shared_count")?;
            shared / inner
        }
        None => keys.count("expert_shared_count")?.unwrap_or(1),
    };
    set(config, "n_shared_experts", shared);
    set(config, "norm_topk_prob", keys.bool("expert_weights_norm")?.unwrap_or(false));
    set(config, "kda_safe_gate", keys.bool("kda.safe_gate")?.unwrap_or(true));
    set(config, "kda_lower_bound", keys.required_float("kda.gate_lower_bound")?);
    Ok(())
}

/// MiniMax-Text-01 and MiniMax-M1, whose sums have one factor in all layers.
fn minimax(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let layers = 0..keys.layers()?;
    let linear: Vec<bool> =
        layers.map(|layer| keys.has(&format!("blk.{layer}.attn_qkv.weight"))).collect();
    set_kinds(config, &linear);
    let factor = keys.required_float("residual_scale")?;
    for field in ["full_attn_alpha_factor", "linear_attn_alpha_factor", "mlp_alpha_factor"] {
        set(config, field, factor);
    }
    set_experts(keys, config, SOFTMAX)?;
    if keys.bool("expert_weights_norm")? == Some(false) {
        let key = keys.key("expert_weights_norm");
        return Err(format!("metadata `{key}` is off, which is not supported"));
    }
    set(config, "experts_apart", true);
    Ok(())
}
