//! MiniMax-Text-01 and MiniMax-M1: lightning attention, and softmax attention in every eighth layer; norms
//! of inputs whose outputs are what sums are made with, each with a factor; experts in every layer.

use crate::layers::mlp::MlpTensors;
use crate::layers::moe::ExpertTensors;
use crate::layers::norm::NormSpec;
use crate::layers::recurrent::{CellSpec, LightningSpec, RecurrentSpec};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, RawFields, ResidualScales, Result,
    RopeDefaults, are_separate, base, experts,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("MiniMaxForCausalLM", spec).completed_by(complete),
    Architecture::new("MiniMaxText01ForCausalLM", spec).completed_by(complete),
    Architecture::new("MiniMaxM1ForCausalLM", spec).completed_by(complete),
];

/// Names in the files of its own code.
fn complete(fields: &mut RawFields<'_>) {
    fields.kinds("layer_types", "attn_type_list", ["linear_attention", "full_attention"]);
    for (name, alias) in [
        ("full_attn_alpha_factor", "layernorm_full_attention_alpha"),
        ("full_attn_beta_factor", "layernorm_full_attention_beta"),
        ("linear_attn_alpha_factor", "layernorm_linear_attention_alpha"),
        ("linear_attn_beta_factor", "layernorm_linear_attention_beta"),
        ("mlp_alpha_factor", "layernorm_mlp_alpha"),
        ("mlp_beta_factor", "layernorm_mlp_beta"),
    ] {
        fields.alias(name, alias);
    }
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("postnorm", true)?;
    config.only("shared_intermediate_size", 0)?;
    let rope = RopeDefaults { theta: 1_000_000.0, partial: true, ..Defaults::LLAMA.rope };
    let defaults =
        Defaults { kv_heads: Some(8), context: 131_072, norm_eps: 1e-5, rope, ..Defaults::LLAMA };
    let mut spec = base(config, &defaults)?;
    let kinds = [("full_attention", false), ("linear_attention", true)];
    let linear = config.layer_kinds(&kinds, "full_attention and linear_attention")?;
    let layers = config.num_hidden_layers;
    let linear = linear.unwrap_or_else(|| (0..layers).map(|layer| layer % 2 == 1).collect());
    for layer in &mut spec.attention {
        layer.params.window = config.sliding_window.flatten();
    }
    let factor = |name| config.number_or(name, 1.0);
    let full = [factor("full_attn_alpha_factor")?, factor("full_attn_beta_factor")?];
    let other = [factor("linear_attn_alpha_factor")?, factor("linear_attn_beta_factor")?];
    let mlp = [factor("mlp_alpha_factor")?, factor("mlp_beta_factor")?];
    let scales = |linear: &bool| ResidualScales { mixer: if *linear { other } else { full }, mlp };
    spec.residuals_from_norms = Some(linear.iter().map(scales).collect());
    let mut moe = experts(config, &spec, &ExpertFields::ALL_SPARSE)?;
    moe.router = "block_sparse_moe.gate";
    moe.experts = ExpertTensors::List("block_sparse_moe.experts");
    moe.expert.tensors = MlpTensors::Gated(["w1", "w3", "w2"]);
    moe.routing.renormalize = true;
    spec.recurrent = lightning(config, &spec, linear)?;
    spec.moe = Some(moe);
    Ok(spec)
}

/// Lightning attention in these layers; `None` if there are no such layers.
fn lightning(
    config: &HfConfig,
    spec: &DecoderSpec,
    layers: Vec<bool>,
) -> Result<Option<RecurrentSpec>> {
    let Some(attention) = spec.attention.first().filter(|_| layers.contains(&true)) else {
        return Ok(None);
    };
    let (heads, head_dim) = (attention.num_heads, attention.head_dim);
    let cell = CellSpec::Lightning(LightningSpec {
        head_dim,
        rates: (0..config.num_hidden_layers)
            .map(|layer| rates(heads, layer, config.num_hidden_layers))
            .collect(),
        activation: spec.mlp.activation,
        norm: NormSpec::rms(1e-6),
    });
    // GGUF files call the output projections of all layers alike.
    let output = if are_separate(config)? { attention.output } else { "out_proj" };
    let (name, output_bias, beside_attention) = ("self_attn", false, None);
    Ok(Some(RecurrentSpec { layers, name, output, output_bias, cell, beside_attention }))
}

/// Heads forget at rates of a geometric series, and deeper layers more slowly.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "heads and layers are few"
)]
fn rates(heads: usize, layer: usize, layers: usize) -> Vec<f32> {
    let depth = 1.0 - layer as f64 / (layers as f64 - 1.0 + 1e-5) + 1e-5;
    let base = 2f64.powf(-8.0 / heads as f64);
    (1..=heads).map(|head| (base.powf(head as f64) * depth) as f32).collect()
}
