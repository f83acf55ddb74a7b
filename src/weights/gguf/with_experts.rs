//! Rows of the table of architectures with experts whose routers, gates or kinds of layers have
//! names of their own, and what their files say otherwise.

use serde_json::Value as Json;

use super::architecture::{Architecture, Outer, Part};
use super::families::{
    Config, Done, GRANITE_NUMBERS, SIGMOID, SOFTMAX, experts_behind_dense, granite, set, set_class,
    set_experts, set_experts_apart, sigmoid_experts,
};
use super::keys::{HeadCounts, ModelKeys};
use super::parts::{
    ATTENTION, EXPERTS, GATED_MLP, HEAD_NORMS, HUNYUAN_NORMS, LLAMA, MIXTRAL, OUTER, PRE_NORMS,
    QWEN_SHARED_EXPERT, SHARED_EXPERTS, block_sparse_experts,
};
use super::value::Value;

/// The layers of Trinity, but for attention, head norms and feed-forward parts.
const AFMOE_LAYERS: &[Part] = &[
    ("attn_norm", "input_layernorm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_mlp_layernorm"),
    ("post_ffw_norm", "post_mlp_layernorm"),
    ("attn_gate", "self_attn.gate_proj"),
    ("exp_probs_b", "mlp.expert_bias!"),
];

/// The experts of Hunyuan and of Trinity, but for the router.
const LISTED_EXPERTS: &[Part] = &[
    ("ffn_gate_exps", "mlp.experts.*.gate_proj"),
    ("ffn_up_exps", "mlp.experts.*.up_proj"),
    ("ffn_down_exps", "mlp.experts.*.down_proj"),
    ("ffn_gate_up_exps", "mlp.experts.*.gate_proj|mlp.experts.*.up_proj"),
];

/// The shared expert of Hunyuan.
const SHARED_MLP: &[Part] = &[
    ("ffn_gate_shexp", "mlp.shared_mlp.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_mlp.up_proj"),
    ("ffn_down_shexp", "mlp.shared_mlp.down_proj"),
];

const DEEPSEEK: Architecture = Architecture {
    gguf: "deepseek",
    class: "DeepseekForCausalLM",
    model_type: "deepseek",
    blocks: &[ATTENTION, PRE_NORMS, GATED_MLP, EXPERTS, SHARED_EXPERTS],
    interleaved_rope: true,
    more: softmax_experts,
    ..LLAMA
};

/// Architectures with experts beside those of
/// [`ARCHITECTURES`](super::architectures::ARCHITECTURES).
pub(super) const WITH_EXPERTS: &[Architecture] = &[
    Architecture {
        gguf: "afmoe",
        class: "AfmoeForCausalLM",
        model_type: "afmoe",
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            AFMOE_LAYERS,
            GATED_MLP,
            &[("ffn_gate_inp", "mlp.router.gate")],
            LISTED_EXPERTS,
            SHARED_EXPERTS,
        ],
        more: afmoe,
        ..LLAMA
    },
    Architecture {
        gguf: "laguna",
        class: "LagunaForCausalLM",
        model_type: "laguna",
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            PRE_NORMS,
            GATED_MLP,
            EXPERTS,
            QWEN_SHARED_EXPERT,
            &[
                ("attn_gate", "self_attn.g_proj"),
                ("exp_probs_b", "mlp.experts.e_score_correction_bias!"),
            ],
        ],
        heads: laguna_heads,
        more: laguna,
        ..LLAMA
    },
    Architecture {
        gguf: "mellum",
        class: "MellumForCausalLM",
        model_type: "mellum",
        blocks: &[ATTENTION, HEAD_NORMS, PRE_NORMS, GATED_MLP, EXPERTS],
        more: mellum,
        ..LLAMA
    },
    Architecture {
        gguf: "cohere2moe",
        class: "Cohere2MoeForCausalLM",
        model_type: "cohere2_moe",
        blocks: &[
            ATTENTION,
            &[("attn_norm", "input_layernorm")],
            GATED_MLP,
            EXPERTS,
            SHARED_EXPERTS,
        ],
        norm_eps: ("attention.layer_norm_epsilon", "layer_norm_eps"),
        numbers: &[
            ("logit_scale", "logit_scale"),
            ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
        ],
        more: cohere2_moe,
        ..LLAMA
    },
    Architecture {
        gguf: "exaone-moe",
        class: "ExaoneMoeForCausalLM",
        model_type: "exaone_moe",
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            PRE_NORMS,
            GATED_MLP,
            EXPERTS,
            SHARED_EXPERTS,
            &[("exp_probs_b", "mlp.e_score_correction_bias!")],
        ],
        more: exaone_moe,
        ..LLAMA
    },
    DEEPSEEK,
    // The same, but for names that conversion does away with.
    Architecture { gguf: "bailingmoe", ..DEEPSEEK },
    Architecture {
        gguf: "bailingmoe2",
        class: "BailingMoeV2ForCausalLM",
        model_type: "bailing_moe",
        outer: Outer { embedding: "model.word_embeddings", ..OUTER },
        blocks: &[
            &[
                ("attn_qkv", "attention.query_key_value"),
                ("attn_output", "attention.dense"),
                ("attn_q_norm", "attention.query_layernorm"),
                ("attn_k_norm", "attention.key_layernorm"),
                ("exp_probs_b", "mlp.gate.expert_bias!"),
            ],
            PRE_NORMS,
            GATED_MLP,
            EXPERTS,
            SHARED_EXPERTS,
        ],
        more: bailing_2,
        ..LLAMA
    },
    Architecture {
        gguf: "hunyuan-moe",
        class: "HunYuanMoEV1ForCausalLM",
        model_type: "hunyuan_v1_moe",
        blocks: &[
            ATTENTION,
            PRE_NORMS,
            HUNYUAN_NORMS,
            &[("ffn_gate_inp", "mlp.gate.wg")],
            LISTED_EXPERTS,
            SHARED_MLP,
        ],
        more: |keys, config| {
            keys.count("expert_shared_count")?;
            set_experts(keys, config, SOFTMAX)
        },
        ..LLAMA
    },
    Architecture {
        gguf: "hy_v3",
        class: "HYV3ForCausalLM",
        model_type: "hy_v3",
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            PRE_NORMS,
            GATED_MLP,
            &[("ffn_gate_inp", "mlp.router.gate"), ("exp_probs_b", "mlp.expert_bias!")],
            LISTED_EXPERTS,
            SHARED_MLP,
        ],
        more: hunyuan_3,
        ..LLAMA
    },
    Architecture {
        gguf: "phimoe",
        class: "PhimoeForCausalLM",
        model_type: "phimoe",
        blocks: &[ATTENTION, PRE_NORMS, MIXTRAL[0], MIXTRAL[1]],
        more: |keys, config| {
            set(config, "lm_head_bias", keys.has("output.bias"));
            set(config, "num_local_experts", keys.required("expert_count")?);
            set_experts(keys, config, SOFTMAX)
        },
        ..LLAMA
    },
    Architecture {
        gguf: "granite_swa",
        class: "GraniteSWAForCausalLM",
        also: &["GraniteMoeSWAForCausalLM"],
        model_type: "granite_swa",
        blocks: &[
            ATTENTION,
            PRE_NORMS,
            GATED_MLP,
            &[
                ("attn_sinks", "self_attn.sinks!"),
                ("ffn_gate_inp", "block_sparse_moe.router"),
                ("ffn_up_shexp", "shared_mlp.gate_proj|shared_mlp.up_proj"),
                ("ffn_down_shexp", "shared_mlp.down_proj"),
            ],
            block_sparse_experts!("gate_proj", "up_proj", "down_proj"),
        ],
        interleaved_rope: true,
        numbers: GRANITE_NUMBERS,
        more: granite_swa,
        ..LLAMA
    },
    Architecture {
        gguf: "minimax-m3",
        class: "MiniMaxM3SparseForCausalLM",
        also: &["MiniMaxM3SparseForConditionalGeneration"],
        model_type: "minimax_m3_vl",
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            PRE_NORMS,
            GATED_MLP,
            &[
                ("ffn_gate_inp", "block_sparse_moe.gate"),
                ("exp_probs_b", "block_sparse_moe.e_score_correction_bias!"),
                ("ffn_gate_shexp", "block_sparse_moe.shared_experts.gate_proj"),
                ("ffn_up_shexp", "block_sparse_moe.shared_experts.up_proj"),
                ("ffn_down_shexp", "block_sparse_moe.shared_experts.down_proj"),
                ("indexer.q_proj", "self_attn.index_q_proj"),
                ("indexer.k_proj", "self_attn.index_k_proj"),
                ("indexer.q_norm", "self_attn.index_q_norm"),
                ("indexer.k_norm", "self_attn.index_k_norm"),
            ],
            block_sparse_experts!("w1", "w3", "w2"),
        ],
        norms_plus_one: true,
        more: minimax_m3,
        ..LLAMA
    },
];

/// Experts chosen by softmax beside shared ones, from some layer on.
fn softmax_experts(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    experts_behind_dense(keys, config, SOFTMAX)?;
    keys.count("expert_shared_feed_forward_length")?;
    let experts = config["num_experts"].clone();
    set(config, "n_routed_experts", experts);
    Ok(())
}

fn bailing_2(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    sigmoid_experts(keys, config)?;
    let shared = config["n_shared_experts"].clone();
    set(config, "num_shared_experts", shared);
    set(config, "use_qkv_bias", keys.has("blk.0.attn_qkv.bias"));
    set(config, "use_bias", keys.has("blk.0.attn_output.bias"));
    set(config, "use_qk_norm", keys.has("blk.0.attn_q_norm.weight"));
    Ok(())
}

/// Sets which layers have a window, where the file doesn't say it.
fn default_windows(
    keys: &ModelKeys<'_>,
    config: &mut Config,
    windowed: impl Fn(usize) -> bool,
) -> Done {
    if config["sliding_window"].is_null() || config.contains_key("layer_types") {
        return Ok(());
    }
    let kind = |layer| if windowed(layer) { "sliding_attention" } else { "full_attention" };
    set(config, "layer_types", (0..keys.layers()?).map(kind).collect::<Vec<_>>());
    Ok(())
}

/// Sets which layers have experts, by the routers that there are.
pub(super) fn set_sparse_layers(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let kind = |layer| {
        let routes = keys.has(&format!("blk.{layer}.ffn_gate_inp.weight"));
        if routes { "sparse" } else { "dense" }
    };
    set(config, "mlp_layer_types", (0..keys.layers()?).map(kind).collect::<Vec<_>>());
    keys.count("leading_dense_block_count")?;
    Ok(())
}

/// Sets the factor of experts' weights.
pub(super) fn set_scale(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let scale = keys.float("expert_weights_scale")?.filter(|scale| *scale != 0.0);
    set(config, "routed_scaling_factor", scale.unwrap_or(1.0));
    Ok(())
}

/// MiniMax M3, whose layers with an indexer are those that have its tensors.
fn minimax_m3(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let dense = config["intermediate_size"].clone();
    set_experts_apart(keys, config, SIGMOID)?;
    set(config, "dense_intermediate_size", dense);
    set_scale(keys, config)?;
    set_sparse_layers(keys, config)?;
    if keys.bool("expert_weights_norm")? == Some(false) {
        let key = keys.key("expert_weights_norm");
        return Err(format!("metadata `{key}` is off, which this architecture never has"));
    }
    keys.count("expert_shared_count")?;
    let shared = ".ffn_down_shexp.weight";
    let shared = keys.tensors().iter().find(|tensor| tensor.name.ends_with(shared));
    if let Some(inner) = shared.and_then(|down| down.shape.last()) {
        set(config, "shared_intermediate_size", *inner);
    }
    set(config, "rotary_dim", keys.required("rope.dimension_count")?);
    for (field, end) in [
        ("index_n_heads", "attention.indexer.head_count"),
        ("index_head_dim", "attention.indexer.key_length"),
        ("index_topk_blocks", "attention.indexer.top_k"),
        ("index_block_size", "attention.indexer.block_size"),
        ("index_local_blocks", "attention.indexer.local_blocks"),
    ] {
        set(config, field, keys.required(end)?);
    }
    let kind = |layer| {
        let chooses = keys.has(&format!("blk.{layer}.indexer.q_proj.weight"));
        if chooses { "minimax_m3_sparse" } else { "full_attention" }
    };
    set(config, "layer_types", (0..keys.layers()?).map(kind).collect::<Vec<_>>());
    Ok(())
}

/// Trinity, whose embeddings are always scaled.
fn afmoe(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    set_experts(keys, config, SIGMOID)?;
    set_scale(keys, config)?;
    set(config, "mup_enabled", true);
    set(config, "num_shared_experts", keys.count("expert_shared_count")?.unwrap_or(0));
    set(config, "num_dense_layers", keys.count("leading_dense_block_count")?.unwrap_or(0));
    set(config, "norm_topk_prob", keys.bool("expert_weights_norm")?.unwrap_or(true));
    default_windows(keys, config, |layer| (layer + 1) % 4 != 0)
}

fn laguna_heads(keys: &ModelKeys<'_>) -> Result<HeadCounts, String> {
    let query = keys.each_layer("attention.head_count")?.into_iter().max().unwrap_or(0);
    if query == 0 {
        return Err(format!("metadata `{}` is 0", keys.key("attention.head_count")));
    }
    keys.heads_of(query, keys.required("attention.head_count_kv")?)
}

fn laguna(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let (counts, heads) = (keys.each_layer("attention.head_count")?, keys.heads()?);
    let gate = keys.tensor("blk.0.attn_gate.weight").and_then(|gate| gate.shape.first());
    let each = match gate {
        Some(rows) if *rows as u64 == counts[0] => "per-head",
        _ => "per-element",
    };
    set(config, "gating", each);
    set(config, "num_attention_heads", heads.query);
    set(config, "num_attention_heads_per_layer", counts);
    set_experts(keys, config, SIGMOID)?;
    set_scale(keys, config)?;
    keys.bool("expert_weights_norm")?;
    keys.count("expert_shared_count")?;
    let end = "expert_shared_feed_forward_length";
    let shared = keys.count(end)?.filter(|inner| *inner > 0);
    if let Some(inner) =
        shared.map(Json::from).or_else(|| config.get("moe_intermediate_size").cloned())
    {
        set(config, "shared_expert_intermediate_size", inner);
    }
    set_sparse_layers(keys, config)?;
    default_windows(keys, config, |layer| layer % 4 != 0)
}

fn mellum(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    set_experts(keys, config, SOFTMAX)?;
    set(config, "norm_topk_prob", keys.bool("expert_weights_norm")?.unwrap_or(true));
    set_sparse_layers(keys, config)?;
    default_windows(keys, config, |layer| (layer + 1) % 4 != 0)
}

fn cohere2_moe(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let end = "expert_gating_func";
    let norm = keys.bool("expert_weights_norm")?.unwrap_or(false);
    let (score, word) = match keys.count(end)? {
        None | Some(0 | SIGMOID) => (SIGMOID, "sigmoid"),
        Some(SOFTMAX) if norm => (SOFTMAX, "softmax"),
        Some(other) => {
            let key = keys.key(end);
            return Err(format!(
                "metadata `{key}` is {other}, expected {SIGMOID}, or {SOFTMAX} and weights whose \
                 sum is 1"
            ));
        }
    };
    set_experts(keys, config, score)?;
    set(config, "expert_selection_fn", word);
    set(config, "norm_topk_prob", norm);
    // 0 says nothing, and 1 changes nothing.
    let plain = |scale: f64| [0.0, 1.0].map(f64::to_bits).contains(&scale.to_bits());
    if keys.float("expert_weights_scale")?.is_some_and(|scale| !plain(scale)) {
        let key = keys.key("expert_weights_scale");
        return Err(format!(
            "metadata `{key}` is set, which is not supported in this architecture"
        ));
    }
    if let Some(width) = keys.count("feed_forward_length")? {
        set(config, "prefix_dense_intermediate_size", width);
    }
    if let Some(inner) = config.get("moe_intermediate_size").cloned() {
        set(config, "intermediate_size", inner);
    }
    set(config, "num_shared_experts", keys.count("expert_shared_count")?.unwrap_or(0));
    set_sparse_layers(keys, config)?;
    default_windows(keys, config, |layer| layer % 4 != 0)
}

fn exaone_moe(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    sigmoid_experts(keys, config)?;
    set(config, "num_shared_experts", keys.count("expert_shared_count")?.unwrap_or(0));
    set_sparse_layers(keys, config)?;
    default_windows(keys, config, |layer| (layer + 1) % 4 != 0)
}

fn hunyuan_3(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    sigmoid_experts(keys, config)?;
    set(config, "norm_topk_prob", keys.bool("expert_weights_norm")?.unwrap_or(true));
    let inner = config.get("moe_intermediate_size").and_then(Json::as_u64).unwrap_or(0);
    let shared = keys.count("expert_shared_feed_forward_length")?.unwrap_or(inner);
    let count = shared.checked_div(inner).unwrap_or(0);
    if count * inner != shared {
        let key = keys.key("expert_shared_feed_forward_length");
        return Err(format!("metadata `{key}` is {shared}, expected a multiple of {inner}"));
    }
    set(config, "n_shared_experts", count);
    set_sparse_layers(keys, config)
}

/// Granite with windows, dense or with experts.
fn granite_swa(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    granite(keys, config)?;
    default_windows(keys, config, |layer| layer % 4 != 0)?;
    if let Some(rotated) = keys.per_layer("attention.rope_pattern", Value::as_bool)? {
        let theta = config["rope_theta"].clone();
        let base = |rotated| if rotated { theta.clone() } else { 0.into() };
        set(config, "layer_rope_theta", rotated.into_iter().map(base).collect::<Vec<_>>());
    }
    if keys.count("expert_count")?.unwrap_or(0) == 0 {
        return Ok(());
    }
    set_class(config, "GraniteMoeSWAForCausalLM", "granitemoe_swa");
    set_experts(keys, config, SOFTMAX)?;
    let shared = keys.count("expert_shared_feed_forward_length")?.unwrap_or(0);
    set(config, "shared_intermediate_size", shared);
    set(config, "experts_apart", true);
    Ok(())
}
