//! Hunyuan, version 1: Llama with a norm of every query and key head after the rotation. One class is
//! dense, the other has experts beside a shared one in every layer.

use crate::layers::attention::{NormSpan, QueryKeyNorm};
use crate::layers::mlp::MlpSpec;
use crate::layers::moe::SharedExpert;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, RawFields, Result, base, experts,
    read_attention_bias,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("HunYuanDenseV1ForCausalLM", spec),
    Architecture::new("HunYuanMoEV1ForCausalLM", moe).completed_by(complete),
];

/// Numbers that files may have for each layer, all of them equal, and a name of a common field.
fn complete(fields: &mut RawFields<'_>) {
    for name in ["num_experts", "moe_topk", "moe_intermediate_size", "num_shared_expert"] {
        fields.one_for_all(name);
    }
    fields.alias("num_experts_per_tok", "moe_topk");
    fields.alias("head_dim", "attention_head_dim");
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("use_qk_norm", true)?;
    config.only("use_cla", false)?;
    let mut spec = base(config, &Defaults { norm_eps: 1e-5, ..Defaults::LLAMA })?;
    read_attention_bias(config, &mut spec);
    let tensors = ["query_layernorm", "key_layernorm"];
    let norm = QueryKeyNorm { norm: spec.norm, over: NormSpan::RotatedHead, tensors };
    for layer in &mut spec.attention {
        layer.query_key_norm = Some(norm);
    }
    Ok(spec)
}

fn moe(config: &HfConfig) -> Result<DecoderSpec> {
    let inner = config.intermediate_size;
    config.only("moe_intermediate_size", inner)?;
    config.only("num_shared_expert", 1usize)?;
    let mut spec = spec(config)?;
    let mut moe = experts(config, &spec, &ExpertFields::ALL_SPARSE)?;
    moe.router = "mlp.gate.wg";
    moe.routing.renormalize = true;
    let shared = MlpSpec { bias: false, ..spec.mlp };
    moe.shared =
        Some(SharedExpert { name: "mlp.shared_mlp", mlp: shared, gate: None, factor: 1.0 });
    spec.moe = Some(moe);
    Ok(spec)
}
