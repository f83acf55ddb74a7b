//! Kimi Linear: Kimi Delta Attention, and latent attention without a rotary embedding in some layers;
//! experts as in DeepSeek 3. Ling's hybrid (BailingHybrid) rotates, gates the heads of latent attention,
//! and bounds how much is forgotten.

use serde_json::{Value, json};

use super::deepseek::latent;
use crate::layers::attention::{GateTensor, HeadGate};
use crate::layers::mlp::MlpTensors;
use crate::layers::moe::{CorrectionBias, ExpertTensors, MoeSpec};
use crate::layers::recurrent::{CellSpec, ChannelDeltaRuleSpec, RecurrentSpec};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, MAX_TAPS, Names, RawFields,
    Result, RopeDefaults, experts, groups, layers_with_experts, remove_rope, set_sigmoid_routing,
    shared_experts,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("KimiLinearForCausalLM", spec).completed_by(complete),
    Architecture::new("BailingHybridForCausalLM", bailing).completed_by(complete_bailing),
];

/// The largest number of heads, and size of one.
const MAX_HEADS: usize = 1 << 12;

/// Its names of common fields; kinds of layers and sizes of heads may be in a field of their own.
fn complete(fields: &mut RawFields<'_>) {
    complete_common(fields);
    let Some(linear) = take_linear_sizes(fields) else { return };
    // Counted from one.
    let full = linear.get("full_attn_layers").and_then(Value::as_array);
    let layers = fields.get("num_hidden_layers").and_then(Value::as_u64);
    if let (Some(full), Some(layers @ ..=4096)) = (full, layers) {
        let kind = |layer: u64| {
            let attends = full.contains(&json!(layer));
            if attends { "full_attention" } else { "linear_attention" }.to_owned()
        };
        fields.default("layer_types", (1..=layers).map(kind).collect::<Vec<_>>());
    }
}

/// Sets the sizes of linear attention as they are in a field of their own, which this gives, if there is one.
pub(super) fn take_linear_sizes(fields: &mut RawFields<'_>) -> Option<Value> {
    let linear = fields.get("linear_attn_config").cloned()?;
    for (name, alias) in [
        ("linear_head_dim", "head_dim"),
        ("linear_num_heads", "num_heads"),
        ("linear_conv_kernel_dim", "short_conv_kernel_size"),
    ] {
        if let Some(value) = linear.get(alias).cloned() {
            fields.set(name, value);
        }
    }
    Some(linear)
}

fn complete_common(fields: &mut RawFields<'_>) {
    for (name, alias) in [
        ("max_position_embeddings", "model_max_length"),
        ("norm_topk_prob", "moe_renormalize"),
        ("n_group", "num_expert_group"),
        ("num_experts_per_tok", "num_experts_per_token"),
        ("n_shared_experts", "num_shared_experts"),
    ] {
        fields.alias(name, alias);
    }
}

fn complete_bailing(fields: &mut RawFields<'_>) {
    complete_common(fields);
    // Files of its own code have the size of a head of linear attention here, others that of a rotated
    // part.
    fields.alias("linear_head_dim", "head_dim");
    fields.remove("head_dim");
    fields.alias("linear_num_heads", "num_attention_heads");
    fields.alias("linear_conv_kernel_dim", "short_conv_kernel_size");
    fields.default("first_k_dense_replace", 2);
    fields.default("n_group", 8);
    fields.default("topk_group", 4);
    fields.default("routed_scaling_factor", 2.5);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults { context: 1 << 20, norm_eps: 1e-5, ..Defaults::LLAMA };
    let mut spec = latent(config, false, &defaults)?;
    remove_rope(&mut spec);
    spec.names.other_mlp = Some("block_sparse_moe");
    let linear = linear_layers(config, |layer| layer == 0 || layer % 4 != 0)?;
    spec.recurrent = delta_rule(config, &spec, linear, None)?;
    let mut moe = with_experts(config, &spec)?;
    moe.router = "block_sparse_moe.gate";
    let name = "block_sparse_moe.gate.e_score_correction_bias";
    moe.correction_bias = Some(CorrectionBias { name, one_row: false });
    moe.experts = ExpertTensors::List("block_sparse_moe.experts");
    moe.expert.tensors = MlpTensors::Gated(["w1", "w3", "w2"]);
    if let Some(shared) = &mut moe.shared {
        shared.name = "block_sparse_moe.shared_experts";
    }
    spec.moe = Some(moe);
    Ok(spec)
}

fn bailing(config: &HfConfig) -> Result<DecoderSpec> {
    let rope = RopeDefaults { theta: 6_000_000.0, ..Defaults::LLAMA.rope };
    let mut spec = latent(config, true, &Defaults { context: 262_144, rope, ..Defaults::LLAMA })?;
    spec.names = Names { embedding: "word_embeddings", attention: "attention", ..Names::COMMON };
    for layer in &mut spec.attention {
        layer.output = "dense";
        layer.gate = Some(HeadGate::sigmoid(GateTensor::Heads("g_proj")));
    }
    let group = config.field_or("layer_group_size", 6usize)?.max(1);
    let linear = linear_layers(config, |layer| !(layer + 1).is_multiple_of(group))?;
    let safe = config.field_or("kda_safe_gate", true)?;
    let bound = config.number_or("kda_lower_bound", -5.0)?;
    spec.recurrent = delta_rule(config, &spec, linear, safe.then_some(bound))?;
    let mut moe = with_experts(config, &spec)?;
    moe.correction_bias = Some(CorrectionBias { name: "mlp.gate.expert_bias", one_row: false });
    spec.moe = Some(moe);
    Ok(spec)
}

/// Whether each layer has linear attention.
fn linear_layers(config: &HfConfig, default: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
    let kinds = [("full_attention", false), ("linear_attention", true)];
    let kinds = config.layer_kinds(&kinds, "full_attention and linear_attention")?;
    Ok(kinds.unwrap_or_else(|| (0..config.num_hidden_layers).map(default).collect()))
}

pub(super) fn delta_rule(
    config: &HfConfig,
    spec: &DecoderSpec,
    layers: Vec<bool>,
    bound: Option<f32>,
) -> Result<Option<RecurrentSpec>> {
    if !layers.contains(&true) {
        return Ok(None);
    }
    let cell = CellSpec::ChannelDeltaRule(ChannelDeltaRuleSpec {
        hidden_size: config.hidden_size,
        heads: config.size_or("linear_num_heads", 32, 1..=MAX_HEADS)?,
        head_dim: config.size_or("linear_head_dim", 128, 1..=MAX_HEADS)?,
        taps: config.size_or("linear_conv_kernel_dim", 4, 2..=MAX_TAPS)?,
        activation: spec.mlp.activation,
        bound,
        norm_eps: spec.norm.eps,
    });
    let (name, output) = (spec.names.attention, spec.attention[0].output);
    let (output_bias, beside_attention) = (false, None);
    Ok(Some(RecurrentSpec { layers, name, output, output_bias, cell, beside_attention }))
}

/// Experts from some layer on, scored by sigmoids.
pub(super) fn with_experts(config: &HfConfig, spec: &DecoderSpec) -> Result<MoeSpec> {
    let mut moe = experts(config, spec, &ExpertFields::COMMON)?;
    let first = config.field_or("first_k_dense_replace", 1)?;
    let layers = config.num_hidden_layers;
    let listed = layers_with_experts(config)?;
    moe.layers = listed.unwrap_or_else(|| (0..layers).map(|layer| layer >= first).collect());
    moe.shared = shared_experts(&moe, config.field_or("n_shared_experts", 1)?);
    set_sigmoid_routing(config, &mut moe, "mlp.gate.e_score_correction_bias", true)?;
    moe.routing.groups = groups(config, moe.num_experts)?;
    Ok(moe)
}
