//! EXAONE 3 and 4. The first is Llama under other names, as its own code on the hub has them. The
//! second has norms after both parts of a layer and norms of query and key heads; where some layers
//! have sliding windows, the others have no rotary embedding. K-EXAONE has the same attention with
//! norms before both parts, and experts with sigmoid scores beside a shared one from some layer on.

use crate::layers::attention::QueryKeyNorm;
use crate::layers::mlp::MlpTensors;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, ExpertFields, HfConfig, Names, RawFields, Result,
    base, experts, groups, layers_with_experts, set_sigmoid_routing, set_windows, shared_experts,
    windowed_layers,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("ExaoneForCausalLM", spec_3).completed_by(complete_3),
    Architecture::new("Exaone4ForCausalLM", spec_4),
    Architecture::new("Exaone4_5_ForConditionalGeneration", of_text),
    Architecture::new("ExaoneMoeForCausalLM", moe).completed_by(complete_moe),
];

/// EXAONE 3's own names of common fields.
fn complete_3(fields: &mut RawFields<'_>) {
    fields.alias("num_hidden_layers", "num_layers");
    fields.alias("hidden_act", "activation_function");
    fields.alias("rms_norm_eps", "layer_norm_epsilon");
}

/// A pattern of windows in letters, which says the same as the default number.
fn complete_moe(fields: &mut RawFields<'_>) {
    if fields.is("sliding_window_pattern", "LLLG") {
        fields.remove("sliding_window_pattern");
    }
}

fn spec_3(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { norm_eps: 1e-5, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    spec.names = Names {
        roots: &["transformer."],
        embedding: "wte",
        layers: "h",
        norm: "ln_f",
        attention: "attn.attention",
        ..Names::COMMON
    };
    spec.block = Block::pre_norm("ln_1", "ln_2");
    spec.mlp.tensors = MlpTensors::Gated(["c_fc_0", "c_fc_1", "c_proj"]);
    for layer in &mut spec.attention {
        layer.output = "out_proj";
    }
    Ok(spec)
}

fn spec_4(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = fourth(config)?;
    spec.block = Block::POST_NORM;
    Ok(spec)
}

/// The language model of EXAONE 4.5, which sees.
fn of_text(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = spec_4(config)?;
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    Ok(spec)
}

/// The part that EXAONE 4 and its mixture of experts share.
fn fourth(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { kv_heads: Some(32), norm_eps: 1e-5, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    let window = config.sliding_window.unwrap_or(Some(4096));
    let windowed = windowed_layers(config, |layer| window.is_some() && (layer + 1) % 4 != 0)?;
    if config.layer_types.is_none() {
        config.only("sliding_window_pattern", 4usize)?;
    }
    set_windows(config, &mut spec, &windowed, Some(4096))?;
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
        layer.rope = (window.is_none() || windowed).then_some(0);
    }
    Ok(spec)
}

fn moe(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = fourth(config)?;
    let mut moe = experts(config, &spec, &ExpertFields::COMMON)?;
    let first = config.field_or("first_k_dense_replace", 1)?;
    let layers = config.num_hidden_layers;
    let listed = layers_with_experts(config)?;
    moe.layers = listed.unwrap_or_else(|| (0..layers).map(|layer| layer >= first).collect());
    set_sigmoid_routing(config, &mut moe, "mlp.e_score_correction_bias", true)?;
    moe.routing.scale = config.number_or("routed_scaling_factor", 2.5)?;
    moe.routing.groups = groups(config, moe.num_experts)?;
    let shared = config.field_or("num_shared_experts", 1)?;
    moe.shared = shared_experts(&moe, shared);
    spec.moe = Some(moe);
    Ok(spec)
}
