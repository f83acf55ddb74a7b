//! MiMo-V2-Flash: heads whose values are smaller than their keys, and scaled; of five layers of six with a
//! sliding window, which have twice as many key heads, attention sinks and a rotary embedding of their
//! own. From some layer on there are experts with sigmoid scores and a correction bias.

use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, MAX_SIZE, RawFields, Result,
    RopeDefaults, bad, base, experts, groups, layers_with_experts, set_sigmoid_routing,
    set_windows, windowed_layers,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("MiMoV2FlashForCausalLM", spec).completed_by(complete)];

const ROPE: RopeDefaults = RopeDefaults { theta: 5_000_000.0, share: 0.334, partial: true };

/// Names that its first files have for common fields, and lists of numbers for kinds of layers.
fn complete(fields: &mut RawFields<'_>) {
    fields.replace("rms_norm_eps", "layernorm_epsilon");
    fields.kinds("layer_types", "hybrid_layer_pattern", ["full_attention", "sliding_attention"]);
    fields.kinds("mlp_layer_types", "moe_layer_freq", ["dense", "sparse"]);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(4),
        head_dim: Some(192),
        context: 131_072,
        norm_eps: 1e-5,
        rope: ROPE,
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    let windowed = windowed_layers(config, |layer| layer != 0 && !(layer + 1).is_multiple_of(6))?;
    set_windows(config, &mut spec, &windowed, Some(129))?;
    // The older field doesn't count the token itself.
    if let Some(before) = config.field::<usize>("sliding_window_size")? {
        for layer in spec.attention.iter_mut().zip(&windowed).filter_map(|(l, w)| w.then_some(l)) {
            layer.params.window = Some(before + 1);
        }
    }
    let head_dim = config.head_dim(defaults.head_dim)?;
    let theta = config.field_or("swa_rope_theta", 10_000.0)?;
    spec.ropes = config.ropes_by_layer_type(head_dim, ROPE, theta)?.to_vec();
    let value_dim = config.size_or("v_head_dim", 128, 1..=MAX_SIZE)?;
    let scale = config.number_or("attention_value_scale", 0.707)?;
    let scale = if config.is_null("attention_value_scale") { 1.0 } else { scale };
    let bias = config.attention_bias.unwrap_or(false);
    for (layer, windowed) in spec.attention.iter_mut().zip(&windowed) {
        let windowed = *windowed;
        layer.rope = Some(usize::from(windowed));
        layer.qkv_bias = bias;
        layer.value_dim = Some(value_dim);
        layer.value_scale = scale;
        if !windowed {
            continue;
        }
        layer.sinks = Some("attention_sink_bias");
        layer.num_kv_heads *= 2;
        if !layer.num_heads.is_multiple_of(layer.num_kv_heads) {
            let bound = format!("twice it must divide `num_attention_heads` = {}", layer.num_heads);
            return Err(bad("num_key_value_heads", layer.num_kv_heads / 2, bound));
        }
    }
    // Heads that draft have a window.
    let local = windowed.iter().position(|windowed| *windowed);
    spec.draft_attention = local.map(|layer| spec.attention[layer]);
    let mut moe = experts(config, &spec, &ExpertFields::COMMON)?;
    let listed = layers_with_experts(config)?;
    let layers = config.num_hidden_layers;
    moe.layers = listed.unwrap_or_else(|| (0..layers).map(|layer| layer > 0).collect());
    set_sigmoid_routing(config, &mut moe, "mlp.gate.e_score_correction_bias", true)?;
    moe.routing.groups = groups(config, moe.num_experts)?;
    spec.moe = Some(moe);
    Ok(spec)
}
