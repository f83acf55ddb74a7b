//! The language models of Gemma 4: Gemma 3 with an attention scale of 1, norms of values, wider
//! heads of which a quarter is rotated in layers with full attention, and a scale of each layer's
//! output. The small models have layers that share the KV cache of earlier ones, and per-layer
//! embeddings; the large ones use keys as values in layers with full attention, and one has experts
//! parallel to its feed-forward parts. The unified ones have no per-layer embeddings and
//! no experts.

use std::collections::{BTreeMap, BTreeSet};

use super::gemma::SANDWICH;
use crate::layers::attention::{AttentionSpec, QkvTensors, QueryKeyNorm};
use crate::layers::moe::{MoeSpec, ParallelDense, ScaledRouter, StackedTensors};
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, LayerInputs, Names, RawFields,
    Result, bad, base, check_size, experts, read_attention_bias, root, scale, set_windows, stacked,
    windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Gemma4ForCausalLM", spec).completed_by(complete),
    Architecture::new("Gemma4ForConditionalGeneration", spec).completed_by(complete),
    Architecture::new("Gemma4UnifiedForCausalLM", spec).completed_by(complete_unified),
    Architecture::new("Gemma4UnifiedForConditionalGeneration", spec).completed_by(complete_unified),
];

/// The most elements of a head.
const MAX_HEAD: usize = 1 << 14;

const EXPERTS: StackedTensors = StackedTensors::new(["experts.gate_up_proj", "experts.down_proj"]);

/// Gemma 4's name of a common field.
fn complete(fields: &mut RawFields<'_>) {
    fields.alias("hidden_act", "hidden_activation");
}

/// Gemma 4 Unified has no per-layer embeddings and other defaults.
fn complete_unified(fields: &mut RawFields<'_>) {
    complete(fields);
    fields.default("sliding_window", 1024);
    fields.default("max_position_embeddings", 262_144);
    fields.default("hidden_size_per_layer_input", 0);
}

/// The decoder of `Gemma4ForCausalLM`, and of `Gemma4ForConditionalGeneration` for text alone.
fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    if config.field::<String>("use_bidirectional_attention")?.as_deref() == Some("all") {
        return Err(bad("use_bidirectional_attention", "all", "supported are null and \"vision\""));
    }
    let defaults = Defaults {
        kv_heads: Some(4),
        head_dim: Some(256),
        context: 131_072,
        tied: true,
        activation: "gelu_pytorch_tanh",
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    spec.block = SANDWICH;
    spec.embedding_scale = root(config.hidden_size);
    spec.layer_scale = Some("layer_scalar");
    spec.logit_softcap = config.positive("final_logit_softcapping")?;
    read_attention_bias(config, &mut spec);
    let windowed = set_attention(config, &mut spec)?;
    share_kv(config, &mut spec, &windowed)?;
    let width = config.field_or("hidden_size_per_layer_input", 256)?;
    if width > 0 {
        spec.layer_inputs = Some(LayerInputs {
            width,
            vocab_size: config.field_or("vocab_size_per_layer_input", 262_144)?,
            activation: spec.mlp.activation,
        });
        spec.picture_filler = Some(config.field_or("pad_token_id", 0)?);
    }
    if config.field_or("enable_moe_block", false)? {
        spec.moe = Some(with_experts(config, &spec)?);
    }
    Ok(spec)
}

/// Sets heads, norms, rotary embeddings and windows; returns which layers have a window.
fn set_attention(config: &HfConfig, spec: &mut DecoderSpec) -> Result<Vec<bool>> {
    let mut windowed = windowed_layers(config, |layer| (layer + 1) % 6 != 0)?;
    // The last layer has full attention even if the file says otherwise.
    if let Some(last) = windowed.last_mut() {
        *last = false;
    }
    set_windows(config, spec, &windowed, Some(512))?;
    let head_dim = spec.attention[0].head_dim;
    let keys_are_values = config.field_or("attention_k_eq_v", false)?;
    let (global_dim, global_heads) = global_heads(config, &windowed, keys_are_values)?;
    spec.ropes = config.proportional_ropes([global_dim, head_dim], 0.25)?.to_vec();
    let norm = QueryKeyNorm::of_heads(spec.norm);
    let value_norm = NormSpec { scale: NormScale::One, ..spec.norm };
    for (layer, windowed) in spec.attention.iter_mut().zip(&windowed) {
        layer.rope = Some(usize::from(*windowed));
        layer.query_key_norm = Some(norm);
        layer.value_norm = Some(value_norm);
        layer.params.scale = 1.0;
        // Pictures are seen both ways within windows alone.
        layer.params.to_named_end = *windowed;
        if !windowed {
            layer.head_dim = global_dim;
            layer.num_kv_heads = global_heads.unwrap_or(layer.num_kv_heads);
            if keys_are_values {
                layer.qkv = QkvTensors::Separate(["q_proj", "k_proj", "k_proj"]);
            }
        }
    }
    Ok(windowed)
}

/// Size of heads, and number of key heads if it differs, of layers with full attention: from
/// `per_layer_config` or, in the first files, from fields of their own.
fn global_heads(
    config: &HfConfig,
    windowed: &[bool],
    keys_are_values: bool,
) -> Result<(usize, Option<usize>)> {
    type Overrides = BTreeMap<String, BTreeMap<String, usize>>;
    let (dim, heads) = if let Some(layers) = config.field::<Overrides>("per_layer_config")? {
        let expected = (0..windowed.len()).filter(|layer| !windowed[*layer]);
        let names: BTreeSet<String> = expected.map(|layer| layer.to_string()).collect();
        let mut all = layers.values();
        let first = all.next().cloned().unwrap_or_default();
        if !layers.keys().eq(&names) || all.any(|other| *other != first) {
            let bound = "must say the same for all layers without a window, and for no other";
            return Err(bad("per_layer_config", layers, bound));
        }
        (first.get("head_dim").copied(), first.get("num_key_value_heads").copied())
    } else {
        let heads = config.field::<usize>("num_global_key_value_heads")?;
        let dim = config.field_or("global_head_dim", 512)?;
        (Some(dim), heads.filter(|_| keys_are_values))
    };
    let dim = match dim {
        None => config.head_dim(Some(256))?,
        Some(dim) => check_size("global_head_dim", dim, 1..=MAX_HEAD)?,
    };
    let query_heads = config.num_attention_heads;
    match heads.filter(|heads| *heads == 0 || !query_heads.is_multiple_of(*heads)) {
        Some(heads) => {
            let bound = format!("must divide `num_attention_heads` = {query_heads}");
            Err(bad("num_global_key_value_heads", heads, bound))
        }
        None => Ok((dim, heads)),
    }
}

/// Shares KV caches: the last `num_kv_shared_layers` read that of the last layer of their kind
/// before them.
pub(super) fn share_kv(config: &HfConfig, spec: &mut DecoderSpec, windowed: &[bool]) -> Result<()> {
    let layers = config.num_hidden_layers;
    let shared = config.field_or("num_kv_shared_layers", 0)?;
    if shared >= layers {
        let bound = format!("must be less than `num_hidden_layers` = {layers}");
        return Err(bad("num_kv_shared_layers", shared, bound));
    }
    let first = layers - shared;
    let last_of = |kind: bool| windowed[..first].iter().rposition(|windowed| *windowed == kind);
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed).skip(first) {
        let Some(owner) = last_of(*windowed) else {
            let bound = "leaves no layer of the same kind that has keys";
            return Err(bad("num_kv_shared_layers", shared, bound));
        };
        *layer = AttentionSpec { kv_from_layer: Some(owner), ..*layer };
    }
    if config.field_or("use_double_wide_mlp", false)? {
        let width = |index| spec.mlp.intermediate_size * if index < first { 1 } else { 2 };
        spec.intermediate_sizes = Some((0..layers).map(width).collect());
    }
    Ok(())
}

fn with_experts(config: &HfConfig, spec: &DecoderSpec) -> Result<MoeSpec> {
    let fields = ExpertFields { chosen: "top_k_experts", ..ExpertFields::COMMON };
    let mut moe = experts(config, spec, &fields)?;
    moe.router = "router.proj";
    moe.experts = stacked(config, EXPERTS, "experts")?;
    moe.routing.renormalize = true;
    moe.parallel_dense = Some(ParallelDense {
        before_experts: "pre_feedforward_layernorm_2",
        after: ["post_feedforward_layernorm_1", "post_feedforward_layernorm_2"],
        router: ScaledRouter {
            scale: "router.scale",
            factor: scale(config.hidden_size),
            expert_scale: "router.per_expert_scale",
            eps: spec.norm.eps,
        },
    });
    Ok(moe)
}
