//! Latent attention: the configuration of DeepSeek's files, and the one matrix of keys and values
//! that newer ones have in two tensors.

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Tensor};
use half::{bf16, f16};
use serde_json::Value as Json;

use super::families::{Config, Done, SIGMOID, SOFTMAX, experts_behind_dense, set, set_class};
use super::keys::{HeadCounts, ModelKeys};
use super::value::Value;
use crate::stored::StoredTensor;

/// How our name of keys of latent vectors `[heads, rank, plain]` ends, which are transposed.
pub(super) const KEYS: &str = ".k_b_proj";
/// How our name of values of latent vectors `[heads, value, rank]` ends.
pub(super) const VALUES: &str = ".v_b_proj";
/// What checkpoints have instead: `[heads * (plain + value), rank]`.
pub(super) const BOTH: &str = ".kv_b_proj";

/// The heads that are rotated, and as many keys as queries.
pub(super) fn heads(keys: &ModelKeys<'_>) -> Result<HeadCounts, String> {
    let small = |count: u64| usize::try_from(count).map_err(|error| error.to_string());
    let query = small(keys.required("attention.head_count")?)?;
    let rotated = small(keys.required("rope.dimension_count")?)?;
    // Which files count as they count key heads says nothing about the tensors.
    keys.count("attention.head_count_kv")?;
    Ok(HeadCounts { query, key: query, dim: rotated, value: rotated, rotary: rotated })
}

pub(super) fn config(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    // Files of before keys and values were apart have the sizes of heads under other names.
    let sizes = match keys.count("attention.key_length_mla")?.filter(|size| *size > 0) {
        Some(key) => [key, keys.required("attention.value_length_mla")?],
        None => [keys.required("attention.key_length")?, keys.required("attention.value_length")?],
    };
    attention(keys, config, sizes)?;
    set_magnitude(keys, config)?;
    if keys.count("expert_count")?.unwrap_or(0) == 0 {
        for unused in ["expert_shared_count", "expert_weights_scale", "leading_dense_block_count"] {
            keys.key(unused);
        }
        return Ok(());
    }
    let biased = keys.tensors().iter().any(|tensor| tensor.name.contains(".exp_probs_b"));
    let gating = keys.count("expert_gating_func")?.unwrap_or(0);
    let sigmoid = gating == SIGMOID || (gating == 0 && biased);
    routed(keys, config, if sigmoid { SIGMOID } else { SOFTMAX })?;
    if sigmoid {
        set_class(config, "DeepseekV3ForCausalLM", "deepseek_v3");
        return Ok(());
    }
    if config["norm_topk_prob"] == true {
        let key = keys.key("expert_weights_norm");
        return Err(format!("metadata `{key}` is set, which is not supported with a softmax"));
    }
    let grouped = config["n_group"].as_u64() > Some(1);
    set(config, "topk_method", if grouped { "group_limited_greedy" } else { "greedy" });
    Ok(())
}

/// DeepSeek V3.2 and GLM-5, whose files say how many tokens an indexer chooses of a context.
pub(super) fn indexed(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    self::config(keys, config)?;
    let (class, model_type) = match keys.gguf() {
        "glm-dsa" => ("GlmMoeDsaForCausalLM", "glm_moe_dsa"),
        _ => ("DeepseekV32ForCausalLM", "deepseek_v32"),
    };
    set_class(config, class, model_type);
    set(config, "index_topk", keys.required("attention.indexer.top_k")?);
    for (field, end) in [
        ("index_n_heads", "attention.indexer.head_count"),
        ("index_head_dim", "attention.indexer.key_length"),
    ] {
        set(config, field, keys.required(end)?);
    }
    if let Some(own) = keys.per_layer("attention.indexer.types", Value::as_bool)? {
        let kinds = own.into_iter().map(|own| if own { "full" } else { "shared" });
        set(config, "indexer_types", kinds.collect::<Vec<_>>());
    }
    if config.contains_key("topk_method") {
        let key = keys.key("expert_gating_func");
        return Err(format!("metadata `{key}` says softmax, which this architecture never has"));
    }
    Ok(())
}

/// Hunyuan 4, which may have an indexer in some layers or in none.
pub(super) fn hunyuan4(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    if keys.count("attention.indexer.top_k")?.unwrap_or(0) > 0 {
        indexed(keys, config)?;
    } else {
        self::config(keys, config)?;
        let layers = keys.required("block_count")?;
        set(config, "layer_types", (0..layers).map(|_| "full_attention").collect::<Vec<_>>());
    }
    set_class(config, "HYV4ForCausalLM", "hy_v4");
    // As the reference rotates.
    set(config, "rope_interleave", true);
    set(config, "hc_mult", keys.required("hyper_connection.count")?);
    for (field, end) in
        [("hc_eps", "hyper_connection.epsilon"), ("hc_magnitude", "hyper_connection.magnitude")]
    {
        set(config, field, keys.required_float(end)?);
    }
    let limits = keys.per_layer("swiglu_clamp_exp", Value::as_f64)?.unwrap_or_default();
    let limit = limits.first().copied().unwrap_or(0.0);
    if limits.iter().any(|other| other.to_bits() != limit.to_bits()) {
        let key = keys.key("swiglu_clamp_exp");
        return Err(format!("metadata `{key}` differs between layers"));
    }
    set(config, "swiglu_limit", limit);
    Ok(())
}

/// Mistral 4, whose queries grow with their position.
pub(super) fn mistral4(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let key = keys.required("attention.key_length_mla")?;
    attention(keys, config, [key, keys.required("attention.value_length_mla")?])?;
    set_magnitude(keys, config)?;
    if let Some(beta) = keys.float("attention.temperature_scale")?.filter(|beta| *beta != 0.0) {
        let Some(scaling) = config.get_mut("rope_scaling").and_then(Json::as_object_mut) else {
            let key = keys.key("attention.temperature_scale");
            return Err(format!("metadata `{key}` without a rope scaling of type yarn"));
        };
        set(scaling, "llama_4_scaling_beta", beta);
    }
    routed(keys, config, SOFTMAX)
}

/// MiniCPM3, whose files leave out the size of a value, and multipliers that all published models
/// have alike.
pub(super) fn minicpm3(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let key = keys.required("attention.key_length")?;
    let rotated = keys.required("rope.dimension_count")?;
    let heads = keys.required("attention.head_count")?;
    let rows = keys.tensor("blk.0.attn_kv_b.weight").and_then(|both| both.shape.first());
    let each = rows.map_or(0, |rows| *rows as u64 / heads);
    let value = (each + rotated).checked_sub(key).filter(|value| *value > 0).ok_or_else(|| {
        format!("`blk.0.attn_kv_b.weight` has {each} rows for each of {heads} heads, too few")
    })?;
    attention(keys, config, [key, value])
}

/// Sizes of heads; `[key, value]` are those of keys and of values.
pub(super) fn attention(keys: &ModelKeys<'_>, config: &mut Config, [key, value]: [u64; 2]) -> Done {
    let rotated = keys.required("rope.dimension_count")?;
    let rank = keys.required("attention.kv_lora_rank")?;
    let plain = key.checked_sub(rotated).filter(|plain| *plain > 0).ok_or_else(|| {
        format!("{rotated} of the {key} dimensions of a key are rotary, expected fewer")
    })?;
    set(config, "qk_rope_head_dim", rotated);
    set(config, "qk_nope_head_dim", plain);
    set(config, "v_head_dim", value);
    set(config, "kv_lora_rank", rank);
    let query_rank = keys.count("attention.q_lora_rank")?.filter(|rank| *rank > 0);
    set(config, "q_lora_rank", query_rank);
    set(config, "attention_bias", keys.has("blk.0.attn_kv_a_mqa.bias"));
    Ok(())
}

/// Experts behind dense layers, by the name that these checkpoints have for their number.
fn routed(keys: &ModelKeys<'_>, config: &mut Config, score: u64) -> Done {
    experts_behind_dense(keys, config, score)?;
    let experts = config["num_experts"].clone();
    set(config, "n_routed_experts", experts);
    Ok(())
}

/// The factor of scores of stretched contexts.
fn set_magnitude(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let end = "rope.scaling.yarn_log_multiplier";
    let Some(tenth) = keys.float(end)?.filter(|scale| *scale != 0.0) else { return Ok(()) };
    let Some(scaling) = config.get_mut("rope_scaling").and_then(Json::as_object_mut) else {
        return Err(format!("metadata `{}` without a rope scaling of type yarn", keys.key(end)));
    };
    // The digits that f32 had.
    let magnitude = (tenth * 1e8).round() / 1e7;
    set(scaling, "mscale", magnitude);
    set(scaling, "mscale_all_dim", magnitude);
    Ok(())
}

/// Keys and values of each head one behind the other, as numbers of the kind that both have or, if
/// that is none, of 32 bits.
pub(super) fn keys_and_values(
    keys: &StoredTensor,
    values: &StoredTensor,
) -> candle_core::Result<StoredTensor> {
    let (kinds, keys) = ([keys.kind().ggml(), values.kind().ggml()], keys.to_tensor(DType::F32)?);
    let values = values.to_tensor(DType::F32)?;
    let both = Tensor::cat(&[keys.transpose(1, 2)?, values], 1)?.flatten(0, 1)?;
    let dims = both.dims().to_vec();
    let both = both.flatten_all()?.to_vec1::<f32>()?.into_iter();
    Ok(match kinds {
        [Some(GgmlDType::BF16), Some(GgmlDType::BF16)] => {
            let bytes = both.flat_map(|number| bf16::from_f32(number).to_le_bytes()).collect();
            StoredTensor::owned(GgmlDType::BF16, dims, bytes)
        }
        [Some(GgmlDType::F16), Some(GgmlDType::F16)] => {
            let bytes = both.flat_map(|number| f16::from_f32(number).to_le_bytes()).collect();
            StoredTensor::owned(GgmlDType::F16, dims, bytes)
        }
        _ => StoredTensor::owned(GgmlDType::F32, dims, both.flat_map(f32::to_le_bytes).collect()),
    })
}
