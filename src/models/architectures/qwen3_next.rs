//! Qwen3-Next and the language models of Qwen3.5: most layers have linear attention by the gated
//! delta rule; the others have gated attention in which a quarter of each head is rotated. Scales
//! of norms are `1 + weight`, except for the norm of the delta rule's output.
//!
//! Qwen3-Next has Qwen2-MoE's experts, and the inputs of its linear attention are fused key head by
//! key head. Qwen3.5 has a tensor for each input; it is dense, or has experts in every layer.

use super::qwen_moe::{shared_expert, sparse_experts};
use super::qwen_vl::with_axes;
use crate::layers::attention::{GateTensor, HeadGate, QueryKeyNorm};
use crate::layers::moe::{ExpertTensors, MoeSpec, StackedTensors};
use crate::layers::norm::{NormScale, NormSpec};
use crate::layers::recurrent::{CellSpec, DeltaHeads, DeltaRuleSpec, RecurrentSpec};
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, HfConfig, MAX_TAPS, RawFields, Result, RopeDefaults, bad,
    base, read_attention_bias,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Qwen3NextForCausalLM", spec).completed_by(complete),
    Architecture::new("Qwen3_5ForCausalLM", spec_5),
    Architecture::new("Qwen3_5ForConditionalGeneration", spec_5),
    Architecture::new("Qwen3_5MoeForCausalLM", moe_5).completed_by(complete_moe_5),
    Architecture::new("Qwen3_5MoeForConditionalGeneration", moe_5).completed_by(complete_moe_5),
];

/// The most elements of a head, and the most heads of a layer.
const MAX_HEADS: usize = 1 << 14;

const EXPERTS: StackedTensors =
    StackedTensors::new(["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]);

/// Defaults of Qwen3-Next, where sizes depend on them.
fn complete(fields: &mut RawFields<'_>) {
    fields.default("intermediate_size", 5632);
    fields.default("num_experts", 512);
    fields.default("num_experts_per_tok", 10);
    fields.default("norm_topk_prob", true);
    complete_experts(fields);
}

/// Defaults of Qwen3.5 with experts, where sizes depend on them.
fn complete_moe_5(fields: &mut RawFields<'_>) {
    fields.default("num_experts", 256);
    fields.default("num_experts_per_tok", 8);
    complete_experts(fields);
    // No layer is dense.
    fields.alias("intermediate_size", "moe_intermediate_size");
}

fn complete_experts(fields: &mut RawFields<'_>) {
    fields.default("moe_intermediate_size", 512);
    fields.default("shared_expert_intermediate_size", 512);
}

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = common(config, 2)?;
    if config.field::<usize>("num_experts")? != Some(0) {
        spec.moe = Some(with_experts(config, &spec)?);
    }
    Ok(spec)
}

/// How many pairs of Qwen3.5's rotary embedding turn by time, by rows and by columns of pictures.
const SECTIONS: [usize; 3] = [11, 11, 10];

/// The decoder of `Qwen3_5ForCausalLM` and of `Qwen3_5ForConditionalGeneration`.
fn spec_5(config: &HfConfig) -> Result<DecoderSpec> {
    with_axes(config, common(config, 4)?, SECTIONS, true)
}

/// The same decoder, whose tokens of pictures have positions in a line as those of texts have.
pub(super) fn without_axes(config: &HfConfig) -> Result<DecoderSpec> {
    common(config, 4)
}

/// The decoder of `Qwen3_5MoeForCausalLM` and of `Qwen3_5MoeForConditionalGeneration`.
fn moe_5(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = with_axes(config, common(config, 2)?, SECTIONS, true)?;
    let mut moe = with_experts(config, &spec)?;
    moe.layers.fill(true);
    moe.routing.renormalize = true;
    spec.moe = Some(moe);
    Ok(spec)
}

/// Qwen2-MoE's experts, stacked or in a list.
fn with_experts(config: &HfConfig, spec: &DecoderSpec) -> Result<MoeSpec> {
    let experts = ExpertTensors::StackedOrList(EXPERTS, "mlp.experts");
    let shared = Some(shared_expert(config, spec)?);
    Ok(MoeSpec { experts, shared, ..sparse_experts(config, spec)? })
}

/// The part that all classes share.
fn common(config: &HfConfig, kv_heads: usize) -> Result<DecoderSpec> {
    let defaults = Defaults {
        kv_heads: Some(kv_heads),
        head_dim: Some(256),
        context: 32_768,
        rope: RopeDefaults { share: 0.25, partial: true, ..Defaults::LLAMA.rope },
        ..Defaults::LLAMA
    };
    config.only("attn_output_gate", true)?;
    let gate = config.field::<String>("output_gate_type")?;
    if let Some(other) = gate.filter(|gate| !matches!(gate.as_str(), "swish" | "silu")) {
        return Err(bad("output_gate_type", other, "supported are swish and silu"));
    }
    let mut spec = base(config, &defaults)?;
    read_attention_bias(config, &mut spec);
    spec.norm = NormSpec { scale: NormScale::OnePlusStored, ..spec.norm };
    for layer in &mut spec.attention {
        layer.gate = Some(HeadGate::sigmoid(GateTensor::BehindQueries));
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
    }
    spec.recurrent = Some(RecurrentSpec {
        beside_attention: None,
        layers: recurrent_layers(config)?,
        name: "linear_attn",
        output: "out_proj",
        output_bias: false,
        cell: CellSpec::DeltaRule(DeltaRuleSpec {
            hidden_size: config.hidden_size,
            heads: heads(config, [16, 32])?,
            taps: config.size_or("linear_conv_kernel_dim", 4, 2..=MAX_TAPS)?,
            activation: spec.mlp.activation,
            norm_eps: spec.norm.eps,
            write_scale: 1.0,
        }),
    });
    Ok(spec)
}

/// The heads of linear attention, by default so many for keys and for values.
pub(super) fn heads(config: &HfConfig, [keys, values]: [usize; 2]) -> Result<DeltaHeads> {
    let size = |name, default| config.size_or(name, default, 1..=MAX_HEADS);
    let heads = DeltaHeads {
        keys: size("linear_num_key_heads", keys)?,
        values: size("linear_num_value_heads", values)?,
        key_dim: size("linear_key_head_dim", 128)?,
        value_dim: size("linear_value_head_dim", 128)?,
        // The order of heads in GGUF files.
        tiled: config.field_or("linear_value_heads_tiled", false)?,
    };
    if !heads.values.is_multiple_of(heads.keys) {
        let bound = format!("must be a multiple of `linear_num_key_heads` = {}", heads.keys);
        return Err(bad("linear_num_value_heads", heads.values, bound));
    }
    Ok(heads)
}

/// Whether each layer has linear attention: by `layer_types`, else all but every
/// `full_attention_interval`-th.
fn recurrent_layers(config: &HfConfig) -> Result<Vec<bool>> {
    let kinds = [("linear_attention", true), ("full_attention", false)];
    if let Some(layers) = config.layer_kinds(&kinds, "linear_attention and full_attention")? {
        return Ok(layers);
    }
    let interval = config.size_or("full_attention_interval", 4, 1..=usize::MAX)?;
    Ok((1..=config.num_hidden_layers).map(|i| i % interval != 0).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(class: &str, changes: &Value) -> Result<DecoderSpec> {
        let mut config = json!({
            "architectures": [class],
            "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 8, "num_attention_heads": 4
        });
        let changes = changes.as_object().unwrap().clone();
        config.as_object_mut().unwrap().extend(changes);
        crate::models::spec(&HfConfig::from_value(&config)?)
    }

    #[test]
    fn what_files_leave_out_is_as_in_the_published_models() {
        for class in ["Qwen3NextForCausalLM", "Qwen3_5MoeForConditionalGeneration"] {
            let spec = read(class, &json!({})).unwrap();
            let recurrent = spec.recurrent.unwrap();
            assert_eq!(recurrent.layers, [true, true, true, false, true, true, true, false]);
            // 3 tokens of 16 queries, 16 keys and 32 values, and the matrices.
            assert_eq!(recurrent.states(), [3 * 8192, 32 * 128 * 128]);
            assert_eq!((spec.attention[0].head_dim, spec.attention[0].num_kv_heads), (256, 2));
            assert_eq!(spec.ropes[0].rotary_dim, 64);
            let moe = spec.moe.unwrap();
            assert!(moe.routing.renormalize && moe.layers == [true; 8]);
            assert_eq!(moe.shared.unwrap().mlp.intermediate_size, 512);
        }
        let dense = json!({"num_experts": 0});
        assert_eq!(read("Qwen3NextForCausalLM", &dense).unwrap().moe, None);
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        let cases = [
            json!({"attn_output_gate": false}),
            json!({"output_gate_type": "sigmoid"}),
            json!({"linear_num_value_heads": 24}),
            json!({"linear_key_head_dim": 0}),
            json!({"linear_conv_kernel_dim": 1}),
            json!({"full_attention_interval": 0}),
            json!({"layer_types": vec!["sliding_attention"; 8]}),
        ];
        for case in cases {
            let field = case.as_object().unwrap().keys().next().unwrap();
            let error = read("Qwen3NextForCausalLM", &case).unwrap_err().to_string();
            assert!(error.contains(&format!("`{field}`")), "{error}");
        }
        assert!(read("Qwen3NextForCausalLM", &json!({"output_gate_type": "swish"})).is_ok());
    }
}
