//! dots3-note: DeepSeek V3.2 with layers whose latent attention has a sliding window and sizes of its own, scales of
//! the low-rank vectors, a norm of the rotated part of keys and a gate of each head. Its language model alone.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::deepseek::{set_selection, spec_listed_as};
use crate::layers::attention::{
    AttentionSpec, GateTensor, HeadGate, IndexerSpec, LatentSpec, RotatedPart,
};
use crate::layers::norm::NormSpec;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, MAX_SIZE, Names, RawFields, Result,
    RopeDefaults, bad, check_size, scale, set_windows,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Dots3NoteForCausalLM", spec).completed_by(complete),
    Architecture::new("Dots3NoteForConditionalGeneration", spec).completed_by(complete),
];

/// The most elements of a part of a head, or of a latent vector.
const MAX_PART: usize = 1 << 14;
const ROPE: RopeDefaults = RopeDefaults { theta: 80_000_000.0, ..Defaults::LLAMA.rope };

/// Other names of fields, and those that differ from DeepSeek's where a file lacks them.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("sliding_window", "sliding_window_size");
    fields.alias("shared_experts_intermediate_size", "moe_shared_expert_intermediate_size");
    fields.default("n_shared_experts", 1);
    // That of whole heads, and not of their rotated part.
    fields.remove("head_dim");
    // The share of a head that is rotated, which follows from other fields.
    let share = "partial_rotary_factor";
    if let Some(Value::Object(mut kinds)) = fields.get("rope_parameters").cloned() {
        kinds.remove(share);
        for kind in kinds.values_mut().filter_map(Value::as_object_mut) {
            kind.remove(share);
        }
        fields.set("rope_parameters", kinds);
    }
}

/// The kind of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Full,
    Windowed,
    Indexed,
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { context: 524_288, norm_eps: 1e-5, rope: ROPE, ..Defaults::LLAMA };
    config.only("k_rope_only_layernorm", true)?;
    config.only("use_dynamic_rsf", false)?;
    let mut spec = spec_listed_as(config, true, &defaults)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    let kinds = kinds(config)?;
    let windowed: Vec<bool> = kinds.iter().map(|kind| *kind == Kind::Windowed).collect();
    set_windows(config, &mut spec, &windowed, Some(512))?;
    let first = windowed.iter().position(|windowed| *windowed);
    let own = first.map(|layer| windowed_sizes(config, layer)).transpose()?;
    let scaled = config.field_or("apply_mla_qkv_lora_rescale", true)?;
    for (layer, windowed) in spec.attention.iter_mut().zip(&windowed) {
        set_sizes(layer, own.as_ref().filter(|_| *windowed), (spec.norm.eps, scaled))?;
    }
    let theta = config.number_or("swa_rope_theta", 50_000.0)?.into();
    let rope_dim = config.size("qk_rope_head_dim", MAX_PART)?;
    let windowed_dim = own.map_or(rope_dim, |own| own.rope_dim);
    let [full, _] = config.ropes_by_layer_type(rope_dim, ROPE, theta)?;
    let [_, windowed] = config.ropes_by_layer_type(windowed_dim, ROPE, theta)?;
    spec.ropes = vec![full, windowed];
    let chooses: Vec<_> =
        kinds.iter().map(|kind| (*kind == Kind::Indexed).then_some(true)).collect();
    let indexer = IndexerSpec {
        heads: 64,
        dim: 128,
        rotated: RotatedPart::FirstPairs,
        eps: 1e-6,
        pool: None,
    };
    set_selection(config, &mut spec, &chooses, indexer)?;
    if let Some(shared) = spec.moe.as_mut().and_then(|moe| moe.shared.as_mut()) {
        let size = config.size_or("shared_experts_intermediate_size", 1536, 1..=MAX_SIZE)?;
        shared.mlp.intermediate_size = size * config.field_or("n_shared_experts", 1usize)?;
    }
    Ok(spec)
}

/// The kind of each layer. `full_attention` has an indexer too unless `use_dsa` says it doesn't.
fn kinds(config: &HfConfig) -> Result<Vec<Kind>> {
    let stated = config.field::<bool>("use_dsa")?;
    let per_layer = config.field::<Value>("per_layer_config")?.is_some();
    let uses = stated.unwrap_or(!per_layer);
    let [mut full, mut indexed] = [Kind::Full, Kind::Indexed];
    if uses {
        full = Kind::Indexed;
    } else if stated.is_some() {
        indexed = Kind::Full;
    }
    let windows = config.field_or("use_sliding_window", true)?;
    let words = [
        ("full_attention", full),
        ("sliding_attention", Kind::Windowed),
        ("indexed_attention", indexed),
    ];
    let given =
        config.layer_kinds(&words, "full_attention, sliding_attention and indexed_attention")?;
    let default = |layer: usize| match layer {
        layer if windows && layer > 1 && layer % 4 != 1 => Kind::Windowed,
        _ if stated == Some(false) => Kind::Full,
        _ => Kind::Indexed,
    };
    Ok(given.unwrap_or_else(|| (0..config.num_hidden_layers).map(default).collect()))
}

/// The sizes of layers with a window.
#[derive(Clone, Copy)]
struct Sizes {
    heads: usize,
    query_rank: usize,
    kv_rank: usize,
    nope_dim: usize,
    rope_dim: usize,
    value_dim: usize,
}

/// Reads the sizes of layers with a window, of which `layer` is one: from fields of their own, else from those of
/// this layer.
fn windowed_sizes(config: &HfConfig, layer: usize) -> Result<Sizes> {
    #[derive(Clone, Copy, Default, Deserialize)]
    struct Fields {
        num_attention_heads: Option<usize>,
        q_lora_rank: Option<usize>,
        kv_lora_rank: Option<usize>,
        qk_nope_head_dim: Option<usize>,
        qk_rope_head_dim: Option<usize>,
        v_head_dim: Option<usize>,
    }
    let of_layers = config.field::<BTreeMap<usize, Fields>>("per_layer_config")?;
    let own = of_layers.as_ref().and_then(|all| all.get(&layer).copied()).unwrap_or_default();
    // What a layer's own fields don't say is that of all layers.
    let size = |name: &'static str, of_layer: Option<usize>, default| {
        let of_all = || config.field(name.trim_start_matches("swa_"));
        let given = match config.field(name)? {
            None if of_layers.is_some() => of_layer.map_or_else(of_all, |own| Ok(Some(own)))?,
            given => given,
        };
        check_size(name, given.unwrap_or(default), 1..=MAX_PART)
    };
    let nope_dim = size("swa_qk_nope_head_dim", own.qk_nope_head_dim, 192)?;
    let rest = config.field_or("swa_head_dim", 256usize)?.saturating_sub(nope_dim);
    Ok(Sizes {
        heads: size("swa_num_attention_heads", own.num_attention_heads, 64)?,
        query_rank: size("swa_q_lora_rank", own.q_lora_rank, 1024)?,
        kv_rank: size("swa_kv_lora_rank", own.kv_lora_rank, 1024)?,
        nope_dim,
        rope_dim: size("swa_qk_rope_head_dim", own.qk_rope_head_dim, rest)?,
        value_dim: size("swa_v_head_dim", own.v_head_dim, 128)?,
    })
}

/// Sets what latent attention is here, with the sizes of layers with a window, if it is one of those: norms with this
/// epsilon, and whether what they give is scaled.
fn set_sizes(
    layer: &mut AttentionSpec,
    windowed: Option<&Sizes>,
    (eps, scaled): (f32, bool),
) -> Result<()> {
    let Some(mut latent) = layer.latent else { return Ok(()) };
    if let Some(own) = windowed {
        let Sizes { heads, kv_rank, nope_dim, rope_dim, value_dim, .. } = *own;
        (layer.num_heads, layer.rope) = (heads, Some(1));
        layer.interleaved_rope = Some(rope_dim);
        let query_rank = Some(own.query_rank);
        latent = LatentSpec { query_rank, kv_rank, nope_dim, rope_dim, value_dim, ..latent };
    }
    let Some(query_rank) = latent.query_rank else {
        return Err(bad("q_lora_rank", "null", "must be a number"));
    };
    latent.norm = NormSpec::rms(eps);
    latent.rotated_key_norm = Some("k_rope_only_layernorm");
    if scaled {
        latent.factor = root_of_ratio(layer.hidden_size, latent.kv_rank);
        latent.query_factor = root_of_ratio(layer.hidden_size, query_rank);
    }
    layer.params.scale = scale(latent.nope_dim + latent.rope_dim);
    layer.head_dim = latent.key_dim();
    layer.gate = Some(HeadGate::sigmoid(GateTensor::Heads("g_proj")));
    layer.latent = Some(latent);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "sizes are below 2^24")]
fn root_of_ratio(size: usize, other: usize) -> f32 {
    (size as f32 / other as f32).sqrt()
}

#[cfg(test)]
mod tests {
    use crate::models::tests::{fields_of_fixture, spec_of_fields};

    #[test]
    fn published_fields_say_the_same_as_those_of_transformers() {
        let saved = fields_of_fixture("dots3_note");
        let mut fields = saved.clone();
        for name in [
            "per_layer_config",
            "rope_parameters",
            "mlp_layer_types",
            "sliding_window",
            "shared_experts_intermediate_size",
        ] {
            fields.remove(name).unwrap();
        }
        let published = serde_json::json!({
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "use_dsa": true, "sliding_window_size": 24, "swa_num_attention_heads": 2,
            "swa_num_key_value_heads": 2, "swa_q_lora_rank": 12, "swa_kv_lora_rank": 24,
            "swa_head_dim": 14, "swa_qk_nope_head_dim": 8, "swa_v_head_dim": 16,
            "swa_rope_theta": 5000.0, "rope_theta": 20000.0, "first_k_dense_replace": 1,
            "moe_shared_expert_intermediate_size": 10,
        });
        fields.extend(published.as_object().unwrap().clone());
        assert_eq!(spec_of_fields(&fields), spec_of_fields(&saved));
        fields.remove("swa_head_dim");
        let whole = spec_of_fields(&fields);
        assert_eq!(whole.attention[1].latent.unwrap().rope_dim, 256 - 8);
    }
}
