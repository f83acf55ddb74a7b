//! Gemma 4's files: heads, and perhaps feed-forward parts, that differ from layer to layer.

use serde_json::{Map, Value as Json, json};

use super::families::{Config, Done, SOFTMAX, set, set_experts, set_softcap};
use super::keys::{HeadCounts, ModelKeys};
use super::rope_tensors::{ROPE_FACTORS, RopeTensors};
use super::value::Value;

/// A divisor of frequencies that stands for no rotation at all.
const NO_ROTATION: f32 = 1e29;
const WINDOWED_DIMS: [&str; 3] =
    ["attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"];
const GLOBAL_DIMS: [&str; 3] =
    ["attention.key_length", "attention.value_length", "rope.dimension_count"];

/// The heads of layers with a window.
pub(super) fn heads(keys: &ModelKeys<'_>) -> Result<HeadCounts, String> {
    let small = |count: u64| usize::try_from(count).map_err(|error| error.to_string());
    let query = keys.required("attention.head_count")?;
    let dim = head_dim(keys, WINDOWED_DIMS, "with a window")?;
    let windowed = windowed(keys)?;
    let counts = keys.each_layer("attention.head_count_kv")?;
    let key = of_kind(&counts, &windowed, true)?.unwrap_or(counts[0]);
    if key == 0 || query % key != 0 {
        return Err(format!("{query} query heads can't share {key} key heads evenly"));
    }
    let dim = small(dim)?;
    Ok(HeadCounts { query: small(query)?, key: small(key)?, dim, value: dim, rotary: dim })
}

/// Elements of a head in some layers, from the metadata of their keys, values and rotations.
fn head_dim(
    keys: &ModelKeys<'_>,
    [key, value, rotary]: [&'static str; 3],
    layers: &str,
) -> Result<u64, String> {
    let dim = keys.required(key)?;
    let value = keys.count(value)?.unwrap_or(dim);
    let rotary = keys.count(rotary)?.unwrap_or(dim);
    if dim % 2 != 0 || value != dim || rotary != dim {
        return Err(format!(
            "heads of layers {layers} have {dim} key, {value} value and {rotary} rotary \
             dimensions, expected three equal and even numbers"
        ));
    }
    Ok(dim)
}

fn windowed(keys: &ModelKeys<'_>) -> Result<Vec<bool>, String> {
    let end = "attention.sliding_window_pattern";
    let windowed = keys.per_layer(end, Value::as_bool)?;
    windowed.ok_or_else(|| format!("metadata `{}` is missing or no array", keys.key(end)))
}

/// What all layers of a kind have in common, if there are any.
pub(super) fn of_kind(
    values: &[u64],
    windowed: &[bool],
    kind: bool,
) -> Result<Option<u64>, String> {
    let mut values = values.iter().zip(windowed).filter(|(_, is)| **is == kind);
    let first = values.next().map(|(value, _)| *value);
    match values.find(|(value, _)| Some(**value) != first) {
        Some((value, _)) => {
            Err(format!("layers of one kind have {} and {value} key heads", first.unwrap_or(0)))
        }
        None => Ok(first),
    }
}

/// Fields beyond the common ones.
pub(super) fn config(keys: &ModelKeys<'_>, config: &mut Config) -> Done {
    let windowed = windowed(keys)?;
    let layers = windowed.len();
    let shared = keys.count("attention.shared_kv_layers")?.unwrap_or(0);
    set(config, "num_kv_shared_layers", shared);
    let first_shared = layers.saturating_sub(usize::try_from(shared).unwrap_or(layers));
    set_global_heads(keys, config, &windowed)?;
    let lacks_values = |layer: &usize| !keys.has(&format!("blk.{layer}.attn_v.weight"));
    let full = (0..first_shared).filter(|layer| !windowed[*layer]);
    set(
        config,
        "attention_k_eq_v",
        full.clone().count() > 0 && full.clone().all(|l| lacks_values(&l)),
    );
    set_widths(keys, config, first_shared)?;
    set_softcap(keys, config, "final_logit_softcapping")?;
    let width = keys.count("embedding_length_per_layer_input")?.unwrap_or(0);
    set(config, "hidden_size_per_layer_input", width);
    if let Some(table) = keys.tensor("per_layer_token_embd.weight") {
        set(config, "vocab_size_per_layer_input", table.shape[0]);
    }
    if keys.count("expert_count")?.unwrap_or(0) > 0 {
        set_experts(keys, config, SOFTMAX)?;
        set(config, "enable_moe_block", true);
        set(config, "top_k_experts", keys.required("expert_used_count")?);
        set(config, "experts_apart", true);
    }
    Ok(())
}

/// Heads of layers that see everything.
fn set_global_heads(keys: &ModelKeys<'_>, config: &mut Config, windowed: &[bool]) -> Done {
    let dim = head_dim(keys, GLOBAL_DIMS, "without a window")?;
    let Some(heads) = of_kind(&keys.each_layer("attention.head_count_kv")?, windowed, false)?
    else {
        return Ok(());
    };
    let full = windowed.iter().enumerate().filter(|(_, windowed)| !**windowed);
    let one = |(layer, _): (usize, _)| {
        (layer.to_string(), json!({"head_dim": dim, "num_key_value_heads": heads}))
    };
    set(config, "per_layer_config", full.map(one).collect::<Map<String, Json>>());
    Ok(())
}

/// Feed-forward parts may be twice as wide in layers that read the keys of others.
fn set_widths(keys: &ModelKeys<'_>, config: &mut Config, first_shared: usize) -> Done {
    let end = "feed_forward_length";
    let Some(widths) = keys.per_layer(end, Value::as_u64)? else { return Ok(()) };
    let (own, sharing) = widths.split_at(first_shared);
    let width = own.first().copied().unwrap_or(0);
    let double = sharing.first().is_some_and(|sharing| *sharing != width);
    let expected = if double { width.saturating_mul(2) } else { width };
    if width == 0 || own.iter().any(|w| *w != width) || sharing.iter().any(|w| *w != expected) {
        let key = keys.key(end);
        return Err(format!("metadata `{key}` is {widths:?}, which is not supported"));
    }
    set(config, "use_double_wide_mlp", double);
    Ok(())
}

/// The rotary embeddings: the file has divisors of 1 for pairs that rotate in layers without a
/// window, and of next to infinity for the others.
pub(super) fn set_rope(keys: &ModelKeys<'_>, tensors: &RopeTensors, config: &mut Config) -> Done {
    let theta = keys.float("rope.freq_base")?.unwrap_or(1_000_000.0);
    let windowed_theta = keys.float("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let kind = keys.text("rope.scaling.type")?.unwrap_or_else(|| "none".to_owned());
    if kind != "none" {
        return Err(format!("rope scaling type `{kind}` is not supported in this architecture"));
    }
    let full = match &tensors.factors {
        None => json!({"rope_type": "default", "rope_theta": theta}),
        Some(factors) => {
            let turning = factors.iter().take_while(|factor| is_one(**factor)).count();
            let pairs = keys.required("attention.key_length")? / 2;
            if factors.len() as u64 != pairs || factors[turning..].iter().any(|f| *f < NO_ROTATION)
            {
                return Err(format!(
                    "`{ROPE_FACTORS}` is not {pairs} numbers that are 1 and then 1e30"
                ));
            }
            #[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
            let share = turning as f64 / factors.len() as f64;
            json!({
                "rope_type": "proportional", "rope_theta": theta, "partial_rotary_factor": share,
            })
        }
    };
    let windowed = json!({"rope_type": "default", "rope_theta": windowed_theta});
    set(config, "rope_scaling", json!({"full_attention": full, "sliding_attention": windowed}));
    Ok(())
}

/// Whether a divisor changes nothing.
fn is_one(factor: f32) -> bool {
    (factor - 1.0).abs() < f32::EPSILON
}
