//! Lara 4 Mini: linear attention by the gated delta rule, attention within a sliding window, which is
//! rotated, and full attention, which is not; norms of query and key heads. Every layer has experts beside
//! a shared one.

use super::{qwen_moe, qwen3_next};
use crate::layers::attention::NormSpan;
use crate::layers::moe::{ExpertTensors, MoeSpec, SharedExpert, StackedTensors};
use crate::layers::recurrent::{CellSpec, DeltaRuleSpec, RecurrentSpec};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, MAX_TAPS, RawFields, Result, base,
    read_attention_bias, set_query_key_norm, set_windows,
};

pub(super) const CLASSES: &[Architecture] =
    &[Architecture::new("LaraMiniForCausalLM", spec).completed_by(complete)];

const EXPERTS: StackedTensors =
    StackedTensors::new(["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]);

/// Its defaults, where sizes depend on them.
fn complete(fields: &mut RawFields<'_>) {
    fields.default("num_experts", 128);
    fields.default("num_experts_per_tok", 4);
    fields.default("norm_topk_prob", true);
    fields.default("moe_intermediate_size", 512);
    fields.default("shared_expert_intermediate_size", 512);
    // No layer is dense.
    fields.alias("intermediate_size", "moe_intermediate_size");
}

/// The kind of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Linear,
    Windowed,
    Full,
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(4),
        head_dim: Some(128),
        context: 131_072,
        tied: true,
        ..Defaults::LLAMA
    };
    let mut spec = base(config, &defaults)?;
    read_attention_bias(config, &mut spec);
    set_query_key_norm(&mut spec, NormSpan::Head);
    let kinds = kinds(config)?;
    let which = |kind: Kind| kinds.iter().map(|own| *own == kind).collect::<Vec<bool>>();
    let windowed = which(Kind::Windowed);
    set_windows(config, &mut spec, &windowed, Some(512))?;
    for (layer, windowed) in spec.attention.iter_mut().zip(windowed) {
        layer.rope = windowed.then_some(0);
    }
    spec.recurrent = Some(RecurrentSpec {
        beside_attention: None,
        layers: which(Kind::Linear),
        name: "linear_attn",
        output: "out_proj",
        output_bias: false,
        cell: CellSpec::DeltaRule(DeltaRuleSpec {
            hidden_size: config.hidden_size,
            heads: qwen3_next::heads(config, [8, 16])?,
            taps: config.size_or("linear_conv_kernel_dim", 4, 2..=MAX_TAPS)?,
            activation: spec.mlp.activation,
            norm_eps: spec.norm.eps,
            write_scale: 1.0,
        }),
    });
    let shared = SharedExpert { gate: None, ..qwen_moe::shared_expert(config, &spec)? };
    let mut moe = qwen_moe::sparse_experts(config, &spec)?;
    moe.layers.fill(true);
    let experts = ExpertTensors::StackedOrList(EXPERTS, "mlp.experts");
    spec.moe = Some(MoeSpec { experts, shared: Some(shared), ..moe });
    Ok(spec)
}

/// The kind of each layer: by `layer_types`, else in a pattern of five.
fn kinds(config: &HfConfig) -> Result<Vec<Kind>> {
    let kinds = [
        ("linear_attention", Kind::Linear),
        ("sliding_attention", Kind::Windowed),
        ("full_attention", Kind::Full),
    ];
    let supported = "linear_attention, sliding_attention and full_attention";
    let given = config.layer_kinds(&kinds, supported)?;
    let default = |layer: usize| match layer % 5 {
        0 | 2 => Kind::Linear,
        3 => Kind::Full,
        _ => Kind::Windowed,
    };
    Ok(given.unwrap_or_else(|| (0..config.num_hidden_layers).map(default).collect()))
}
