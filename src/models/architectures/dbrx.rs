//! DBRX: layer norms without biases, queries, keys and values in one tensor and clipped, and experts in
//! every layer, which are below each other in three matrices.

use serde_json::Value;

use crate::layers::attention::QkvTensors;
use crate::layers::moe::{ExpertTensors, StackedTensors};
use crate::layers::norm::NormSpec;
use crate::models::common::{
    Architecture, Block, DecoderSpec, Defaults, ExpertFields, HfConfig, Names, RawFields, Result,
    bad, base, experts,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("DbrxForCausalLM", spec).completed_by(complete)];

const EXPERTS: StackedTensors = StackedTensors {
    ups: Some("ffn.experts.mlp.v1"),
    flat: true,
    ..StackedTensors::new(["ffn.experts.mlp.w1", "ffn.experts.mlp.w2"])
};

/// Its names of common fields, some of which are in fields for attention and for experts.
fn complete(fields: &mut RawFields<'_>) {
    for (name, part, own) in [
        ("num_key_value_heads", "attn_config", "kv_n_heads"),
        ("rope_theta", "attn_config", "rope_theta"),
        ("clip_qkv", "attn_config", "clip_qkv"),
        ("intermediate_size", "ffn_config", "ffn_hidden_size"),
        ("moe_num_experts", "ffn_config", "moe_num_experts"),
        ("num_experts_per_tok", "ffn_config", "moe_top_k"),
    ] {
        let value = fields.get(part).and_then(|part| part.get(own)).filter(|own| !own.is_null());
        if let Some(value) = value.cloned() {
            fields.default(name, value);
        }
    }
    let activation = |part: &Value| part["ffn_act_fn"]["name"].as_str().map(str::to_owned);
    if let Some(name) = fields.get("ffn_config").and_then(activation) {
        fields.default("hidden_act", name);
    }
    for (name, own, default) in [
        ("hidden_size", "d_model", 2048),
        ("num_attention_heads", "n_heads", 16),
        ("num_hidden_layers", "n_layers", 24),
        ("max_position_embeddings", "max_seq_len", 2048),
        ("num_key_value_heads", "kv_n_heads", 1),
        ("intermediate_size", "ffn_hidden_size", 3584),
        ("moe_num_experts", "num_experts", 4),
        ("num_experts_per_tok", "moe_top_k", 1),
    ] {
        fields.alias(name, own);
        fields.default(name, default);
    }
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = base(config, &Defaults::LLAMA)?;
    spec.names = Names {
        roots: &["transformer."],
        embedding: "wte",
        layers: "blocks",
        norm: "norm_f",
        attention: "norm_attn_norm.attn",
        ..Names::COMMON
    };
    spec.norm = NormSpec::layer(1e-5, false);
    spec.block = Block::pre_norm("norm_attn_norm.norm_1", "norm_attn_norm.norm_2");
    let clip = config.positive("clip_qkv")?;
    for layer in &mut spec.attention {
        layer.qkv = QkvTensors::Stacked("Wqkv");
        layer.output = "out_proj";
        layer.clip = clip;
    }
    let mut moe = experts(config, &spec, &ExpertFields::ALL_SPARSE)?;
    moe.router = "ffn.router.layer";
    moe.experts = ExpertTensors::Stacked(EXPERTS);
    moe.routing.renormalize = renormalizes(config)?;
    spec.moe = Some(moe);
    Ok(spec)
}

/// Whether weights of experts are divided by their sum.
fn renormalizes(config: &HfConfig) -> Result<bool> {
    let name = "moe_normalize_expert_weights";
    let part = config.field::<Value>("ffn_config")?.unwrap_or_default();
    match part.get(name) {
        None => Ok(true),
        Some(Value::Null) => Ok(false),
        Some(norm) if norm.as_f64() == Some(1.0) => Ok(true),
        Some(other) => Err(bad(name, other, "supported are 1 and null")),
    }
}
