//! Rows of the table of architectures whose attention heads, or feed-forward parts, differ from layer to
//! layer, and what their files say otherwise.

use serde_json::{Map, Value as Json, json};

use super::architecture::{Architecture, DraftHead, Part};
use super::families::{Config, Done, SIGMOID, set, set_experts};
use super::gemma4::of_kind;
use super::keys::{HeadCounts, ModelKeys};
use super::parts::{
    ATTENTION, CHOICE_BIAS, EXPERTS, GATED_MLP, HEAD_NORMS, JOINED_ATTENTION, LLAMA, PRE_NORMS,
};
use super::rope_tensors::{ROPE_FACTORS, RopeTensors};
use super::value::Value;
use super::with_experts::{set_scale, set_sparse_layers};

/// The experts of Step 3.5.
const STEP_EXPERTS: &[Part] = &[
    ("ffn_gate_inp", "moe.gate"),
    ("exp_probs_b", "moe.router_bias!"),
    ("ffn_gate_exps", "moe.experts.*.gate_proj"),
    ("ffn_up_exps", "moe.experts.*.up_proj"),
    ("ffn_down_exps", "moe.experts.*.down_proj"),
    ("ffn_gate_shexp", "share_expert.gate_proj"),
    ("ffn_up_shexp", "share_expert.up_proj"),
    ("ffn_down_shexp", "share_expert.down_proj"),
];

/// The rows.
pub(super) const BY_LAYER: &[Architecture] = &[
    Architecture {
        gguf: "deci",
        class: "DeciLMForCausalLM",
        model_type: "nemotron-nas",
        interleaved_rope: true,
        heads: deci_heads,
        more: deci,
        ..LLAMA
    },
    Architecture {
        gguf: "mimo2",
        class: "MiMoV2FlashForCausalLM",
        model_type: "mimo_v2_flash",
        blocks: &[
            ATTENTION,
            JOINED_ATTENTION,
            PRE_NORMS,
            GATED_MLP,
            EXPERTS,
            CHOICE_BIAS,
            &[("attn_sinks", "self_attn.attention_sink_bias!")],
        ],
        heads: mimo2_heads,
        draft_head: Some(DraftHead {
            layer: Some("model.mtp.layers.0"),
            parts: &[
                ("nextn.enorm", "enorm"),
                ("nextn.hnorm", "hnorm"),
                ("nextn.eh_proj", "eh_proj"),
                ("ffn_norm", "pre_mlp_layernorm"),
                ("layer_output_norm", "final_layernorm"),
            ],
        }),
        more: mimo2,
        ..LLAMA
    },
    Architecture {
        gguf: "step35",
        class: "Step3p5ForCausalLM",
        also: &["Step3p7ForConditionalGeneration"],
        model_type: "step3p5",
        blocks: &[
            ATTENTION,
            HEAD_NORMS,
            PRE_NORMS,
            GATED_MLP,
            STEP_EXPERTS,
            &[("attn_gate", "self_attn.g_proj")],
        ],
        norms_plus_one: true,
        heads: step35_heads,
        draft_head: Some(DraftHead {
            layer: None,
            parts: &[
                ("nextn.enorm", "enorm"),
                ("nextn.hnorm", "hnorm"),
                ("nextn.eh_proj", "eh_proj"),
                ("nextn.shared_head_norm", "transformer.shared_head.norm"),
                ("nextn.shared_head_head", "transformer.shared_head.output"),
            ],
        }),
        more: step35,
        ..LLAMA
    },
];

const HEADS: &str = "attention.head_count";
const KEY_HEADS: &str = "attention.head_count_kv";
const WIDTHS: &str = "feed_forward_length";
const PATTERN: &str = "attention.sliding_window_pattern";

fn small(count: u64) -> Result<usize, String> {
    usize::try_from(count).map_err(|error| error.to_string())
}

/// Which layers have a window.
fn windowed(keys: &ModelKeys<'_>) -> Result<Vec<bool>, String> {
    let windowed = keys.per_layer(PATTERN, Value::as_bool)?;
    windowed.ok_or_else(|| format!("metadata `{}` is missing or no array", keys.key(PATTERN)))
}

fn deci_heads(keys: &ModelKeys<'_>) -> Result<HeadCounts, String> {
    let most = |end| keys.each_layer(end).map(|all| all.into_iter().max().unwrap_or(0));
    let (query, key) = (most(HEADS)?, most(KEY_HEADS)?);
    if query == 0 {
        return Err(format!("metadata `{}` is 0", keys.key(HEADS)));
    }
    keys.heads_of(query, key)
}

/// Nemotron NAS and DeciLM: a layer without key heads has no attention, one without a width no feed-forward
/// part.
fn deci(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let hidden = keys.required("embedding_length")?;
    let (query, key) = (keys.each_layer(HEADS)?, keys.each_layer(KEY_HEADS)?);
    let widths = keys.each_layer(WIDTHS)?;
    let plain = |widths: &[u64]| widths.iter().all(|width| *width > 0 && *width == widths[0]);
    if plain(&query) && plain(&widths) && !key.contains(&0) {
        set(config, "num_key_value_heads_per_layer", key);
        return Ok(());
    }
    let mut blocks = Vec::new();
    for ((query, key), width) in query.into_iter().zip(key).zip(widths) {
        // Configurations give widths as multiples of a hidden state, which are rounded up.
        if !width.is_multiple_of(256) {
            let key = keys.key(WIDTHS);
            return Err(format!("metadata `{key}` has {width}, expected multiples of 256"));
        }
        #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
        let times = (width > 0).then(|| 1.5 * width as f64 / hidden as f64);
        let group = query.checked_div(key);
        blocks.push(json!({
            "attention": {
                "n_heads_in_group": group,
                "no_op": query == 0,
                "replace_with_linear": query > 0 && key == 0,
            },
            "ffn": {"ffn_mult": times, "no_op": width == 0},
        }));
    }
    set(config, "block_configs", blocks);
    Ok(())
}

/// Key heads of layers that see everything, of which layers with a window have twice as many.
fn mimo2_heads(keys: &ModelKeys<'_>) -> Result<HeadCounts, String> {
    let (counts, windowed) = (keys.each_layer(KEY_HEADS)?, windowed(keys)?);
    let [full, local] = [false, true].map(|kind| of_kind(&counts, &windowed, kind));
    let key = match (full?, local?) {
        (Some(full), Some(local)) if local != full.saturating_mul(2) => {
            return Err(format!(
                "layers with a window have {local} key heads, expected twice the {full} of others"
            ));
        }
        (Some(full), _) => full,
        (None, local) => local.unwrap_or(0) / 2,
    };
    let (query, dim) = (keys.required(HEADS)?, keys.required("attention.key_length")?);
    if key == 0 || !query.is_multiple_of(2 * key) {
        return Err(format!("{query} query heads can't share {key} and {} key heads", 2 * key));
    }
    Ok(HeadCounts {
        query: small(query)?,
        key: small(key)?,
        dim: small(dim)?,
        value: small(keys.required("attention.value_length")?)?,
        rotary: small(keys.count("rope.dimension_count")?.unwrap_or(dim))?,
    })
}

fn mimo2(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    set(config, "v_head_dim", keys.required("attention.value_length")?);
    // `null`: an absent field stands for a default.
    let scale = keys.float("attention.value_scale")?.filter(|scale| *scale != 0.0);
    set(config, "attention_value_scale", scale);
    set_experts(keys, config, SIGMOID)?;
    set_scale(keys, config)?;
    set(config, "norm_topk_prob", true);
    set(config, "n_group", keys.count("expert_group_count")?.unwrap_or(1).max(1));
    set(config, "topk_group", keys.count("expert_group_used_count")?.unwrap_or(1).max(1));
    set_sparse_layers(keys, config)
}

/// The heads of layers that see everything.
fn step35_heads(keys: &ModelKeys<'_>) -> Result<HeadCounts, String> {
    let (query, key) = (keys.each_layer(HEADS)?, keys.each_layer(KEY_HEADS)?);
    let windowed = windowed(keys)?;
    let full = of_kind(&query, &windowed, false)?.unwrap_or(query[0]);
    if key.iter().any(|count| *count != key[0]) {
        return Err(format!("layers have {key:?} key heads, expected one number"));
    }
    keys.heads_of(full, key[0])
}

/// Step 3.5, whose files leave out that layers without a window rotate half of a head.
fn step35(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let (query, windowed) = (keys.each_layer(HEADS)?, windowed(keys)?);
    if let Some(local) = of_kind(&query, &windowed, true)? {
        set(config, "num_sliding_attention_heads", local);
    }
    // Behind those of the model's layers stand those of layers that draft.
    let key = keys.key(PATTERN);
    let all = keys.metadata().array(&key, "an array of switches", Value::as_bool)?;
    if let Some(slides) = all.and_then(|all| all.get(windowed.len()).copied()) {
        let kind = if slides { "sliding_attention" } else { "full_attention" };
        set(config, "mtp_layer_types", vec![kind]);
    }
    set_experts(keys, config, SIGMOID)?;
    set(config, "n_routed_experts", keys.required("expert_count")?);
    set_scale(keys, config)?;
    if keys.bool("expert_weights_norm")? == Some(false) {
        let key = keys.key("expert_weights_norm");
        return Err(format!("metadata `{key}` is off, which is not supported"));
    }
    set(config, "share_expert_dim", keys.required("expert_shared_feed_forward_length")?);
    set(config, "experts_apart", true);
    for (end, field) in
        [("swiglu_clamp_exp", "swiglu_limits"), ("swiglu_clamp_shexp", "swiglu_limits_shared")]
    {
        if let Some(limits) = keys.per_layer(end, Value::as_f64)? {
            set(config, field, limits);
        }
    }
    set_sparse_layers(keys, config)
}

/// The rotary embeddings of Step 3.5: half of a head where there is no window, with the file's divisors of
/// frequencies if it has them, and whole heads elsewhere.
pub(super) fn set_step_ropes(
    keys: &ModelKeys<'_>,
    tensors: &RopeTensors,
    config: &mut Map<String, Json>,
) -> Done {
    let kind = keys.text("rope.scaling.type")?.unwrap_or_else(|| "none".to_owned());
    if kind != "none" {
        return Err(format!("rope scaling type `{kind}` is not supported in this architecture"));
    }
    let theta = keys.float("rope.freq_base")?.unwrap_or(10_000.0);
    let local = keys.float("rope.freq_base_swa")?.unwrap_or(theta);
    let mut full = json!({
        "rope_type": "default", "rope_theta": theta, "partial_rotary_factor": 0.5,
    });
    if let Some(factors) = &tensors.factors {
        // One for each pair of a whole head, of which the first half is used.
        let pairs = keys.heads()?.dim / 2;
        if factors.len() != pairs || factors.iter().any(|f| !(f.is_finite() && *f > 0.0)) {
            return Err(format!("`{ROPE_FACTORS}` is not {pairs} numbers above 0"));
        }
        full["rope_type"] = "factors".into();
        full["factors"] = factors[..pairs / 2].iter().copied().map(f64::from).collect();
    }
    let windowed = json!({
        "rope_type": "default", "rope_theta": local, "partial_rotary_factor": 1.0,
    });
    set(config, "rope_scaling", json!({"full_attention": full, "sliding_attention": windowed}));
    Ok(())
}
