//! The rotary embedding of a GGUF file, in the words of a Hugging Face `config.json`.

use serde_json::{Map, Value as Json, json};

use super::keys::ModelKeys;
use super::rope_tensors::{ROPE_FACTORS, RopeTensors};
use super::value::Value;
use super::{by_layer, gemma4};

/// Sets `rope_theta`, `partial_rotary_factor` and, where frequencies are stretched or layers
/// differ, `rope_scaling`.
pub(super) fn set(
    keys: &ModelKeys<'_>,
    tensors: &RopeTensors,
    config: &mut Map<String, Json>,
) -> Result<(), String> {
    match keys.gguf() {
        "gemma4" => return gemma4::set_rope(keys, tensors, config),
        "step35" => return by_layer::set_step_ropes(keys, tensors, config),
        _ => {}
    }
    let heads = keys.heads()?;
    let theta = keys.float("rope.freq_base")?.unwrap_or(10_000.0);
    config.insert("rope_theta".to_owned(), theta.into());
    let share = share(heads.rotary, heads.dim);
    config.insert("partial_rotary_factor".to_owned(), share.into());
    let scaling = scaling(keys, tensors, heads.rotary)?;
    let windowed_theta = keys.float("rope.freq_base_swa")?;
    let windows = config.get("sliding_window").is_some_and(|window| !window.is_null());
    if let Some(windowed_theta) = windowed_theta.filter(|_| windows) {
        // Without a kind of stretching, which layers with a window never have.
        let mut full = scaling.unwrap_or_else(|| json!({"rope_type": "default"}));
        full["rope_theta"] = theta.into();
        let mut windowed = json!({"rope_type": "default", "rope_theta": windowed_theta});
        if let Some(rotary) = keys.count("rope.dimension_count_swa")? {
            windowed["partial_rotary_factor"] = windowed_share(rotary, heads.dim)?.into();
        }
        let by_layer = json!({"full_attention": full, "sliding_attention": windowed});
        config.insert("rope_scaling".to_owned(), by_layer);
    } else if let Some(scaling) = scaling {
        config.insert("rope_scaling".to_owned(), scaling);
    }
    Ok(())
}

/// The share of a head that is rotated in layers with a window.
fn windowed_share(rotary: u64, dim: usize) -> Result<f64, String> {
    let even = usize::try_from(rotary).ok().filter(|rotary| rotary.is_multiple_of(2));
    match even.filter(|rotary| (1..=dim).contains(rotary)) {
        Some(rotary) => Ok(share(rotary, dim)),
        None => Err(format!(
            "{rotary} of the {dim} dimensions of a head with a window are rotary, expected an even \
             number from 2 to {dim}"
        )),
    }
}

/// The same where a file must say it.
pub(super) fn set_axes(keys: &ModelKeys<'_>, config: &mut Map<String, Json>) -> Result<(), String> {
    let key = keys.key("rope.dimension_sections");
    if keys.metadata().array(&key, "an array of counts", Value::as_u64)?.is_none() {
        return Err(format!("metadata `{key}` is missing"));
    }
    set_sections(keys, config)
}

/// Sets how many pairs are rotated by a token's position in time, its row and its column.
pub(super) fn set_sections(
    keys: &ModelKeys<'_>,
    config: &mut Map<String, Json>,
) -> Result<(), String> {
    let key = keys.key("rope.dimension_sections");
    let sections = keys.metadata().array(&key, "an array of counts", Value::as_u64)?;
    let Some(sections) = sections else { return Ok(()) };
    let [time, rows, columns, rest @ ..] = sections.as_slice() else {
        return Err(format!("metadata `{key}` is {sections:?}, expected three counts"));
    };
    if rest.iter().any(|count| *count != 0) {
        return Err(format!("metadata `{key}` is {sections:?}, expected three counts and a 0"));
    }
    let scaling = config.entry("rope_scaling").or_insert_with(|| json!({"rope_type": "default"}));
    scaling["mrope_section"] = json!([time, rows, columns]);
    Ok(())
}

/// The share whose product with `dim`, rounded down, is `rotary`.
#[expect(clippy::cast_precision_loss, reason = "head sizes are far below 2^24")]
fn share(rotary: usize, dim: usize) -> f64 {
    let share = rotary as f64 / dim as f64;
    if share * (dim as f64) < rotary as f64 { share.next_up() } else { share }
}

/// `rope_scaling`: `linear`, `yarn`, `longrope`, or `factors`, our word for one divisor per
/// frequency.
fn scaling(
    keys: &ModelKeys<'_>,
    tensors: &RopeTensors,
    rotary: usize,
) -> Result<Option<Json>, String> {
    let kind = keys.text("rope.scaling.type")?;
    let old_linear = keys.float("rope.scale_linear")?.filter(|factor| !is_one(*factor));
    let factor = keys.float("rope.scaling.factor")?.or(old_linear).unwrap_or(1.0);
    if factor <= 0.0 {
        return Err(format!("rope scaling factor is {factor}, expected more than 0"));
    }
    if let (Some(long), Some(short)) = (&tensors.long, &tensors.short) {
        return longrope(keys, long, short, rotary).map(Some);
    }
    let kind = kind.unwrap_or_else(|| if is_one(factor) { "none" } else { "linear" }.to_owned());
    match (kind.as_str(), &tensors.factors) {
        ("none", None) => Ok(None),
        ("linear", None) if is_one(factor) => Ok(None),
        ("linear", None) => Ok(Some(json!({"rope_type": "linear", "factor": factor}))),
        ("none", Some(factors)) => rope_factors(factors, 1.0, rotary).map(Some),
        ("linear", Some(factors)) => rope_factors(factors, factor, rotary).map(Some),
        ("yarn", None) => yarn(keys, factor).map(Some),
        ("yarn", Some(_)) => Err("yarn together with rope_freqs.weight".to_owned()),
        ("longrope", _) => {
            Err("rope scaling type `longrope` without rope_factors_long.weight and \
             rope_factors_short.weight"
                .to_owned())
        }
        (other, _) => Err(format!(
            "rope scaling type `{other}` is not supported; supported are none, linear, yarn, \
             longrope and rope_freqs.weight"
        )),
    }
}

fn yarn(keys: &ModelKeys<'_>, factor: f64) -> Result<Json, String> {
    let mut yarn = Map::new();
    yarn.insert("rope_type".to_owned(), "yarn".into());
    yarn.insert("factor".to_owned(), factor.into());
    let original = keys
        .count("rope.scaling.original_context_length")?
        .ok_or("yarn without `rope.scaling.original_context_length`")?;
    yarn.insert("original_max_position_embeddings".to_owned(), original.into());
    let betas = [
        ("rope.scaling.yarn_beta_fast", "beta_fast"),
        ("rope.scaling.yarn_beta_slow", "beta_slow"),
    ];
    for (end, name) in betas {
        if let Some(value) = keys.float(end)? {
            yarn.insert(name.to_owned(), value.into());
        }
    }
    let attention = match keys.float("rope.scaling.attn_factor")? {
        Some(value) => Some(value),
        None => keys.float("rope.scaling.yarn_attn_factor")?,
    };
    if let Some(attention) = attention.filter(|value| !is_one(*value)) {
        // The file's number multiplies YaRN's own, the configuration's replaces it.
        let own = 1.0 + 0.1 * factor.max(1.0).ln();
        yarn.insert("attention_factor".to_owned(), (attention * own).into());
    }
    Ok(Json::Object(yarn))
}

fn longrope(
    keys: &ModelKeys<'_>,
    long: &[f32],
    short: &[f32],
    rotary: usize,
) -> Result<Json, String> {
    // Without it, that of the pretraining is the whole.
    let original = match keys.count("rope.scaling.original_context_length")? {
        Some(original) => original,
        None => keys.required("context_length")?,
    };
    let mut scaling = json!({
        "rope_type": "longrope",
        "long_factor": checked("rope_factors_long.weight", long, rotary)?,
        "short_factor": checked("rope_factors_short.weight", short, rotary)?,
        "original_max_position_embeddings": original,
    });
    if let Some(attention) = keys.float("rope.scaling.attn_factor")? {
        scaling["attention_factor"] = attention.into();
    }
    Ok(scaling)
}

fn rope_factors(factors: &[f32], scale: f64, rotary: usize) -> Result<Json, String> {
    let factors = checked(ROPE_FACTORS, factors, rotary)?;
    let factors: Vec<f64> = factors.into_iter().map(|factor| factor * scale).collect();
    Ok(json!({"rope_type": "factors", "factors": factors}))
}

/// Divisors of as many frequencies as there are.
fn checked(tensor: &str, factors: &[f32], rotary: usize) -> Result<Vec<f64>, String> {
    if factors.len() != rotary / 2 {
        return Err(format!(
            "`{tensor}` has {} factors, expected {} for {rotary} rotary dimensions",
            factors.len(),
            rotary / 2
        ));
    }
    if let Some(bad) = factors.iter().find(|factor| !(factor.is_finite() && **factor > 0.0)) {
        return Err(format!("`{tensor}` holds {bad}, expected more than 0"));
    }
    Ok(factors.iter().copied().map(f64::from).collect())
}

/// Whether a factor changes nothing.
fn is_one(factor: f64) -> bool {
    (factor - 1.0).abs() < f64::EPSILON
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "small numbers"
    )]
    fn a_share_of_a_head_is_the_same_number_again() {
        for dim in (2..=512).step_by(2) {
            for rotary in (2..=dim).step_by(2) {
                let again = (dim as f64 * share(rotary, dim)) as usize;
                assert_eq!(again, rotary, "of {dim}");
            }
        }
    }
}
