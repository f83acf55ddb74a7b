//! Qwen3-Next and the language models of Qwen3.5: most layers have heads that keep a matrix each, by
//! the gated delta rule, in place of attention; the others have gated attention in which a quarter of
//! each head is rotated. Norms' scales are `1 + weight`, but for those of what the matrices give.
//!
//! Qwen3-Next has Qwen2-MoE's experts, and its linear layers' inputs lie together, key head by key
//! head. Qwen3.5 has a tensor for each input; it is dense, or has experts in every layer.

use super::qwen_moe::{set_experts, shared_expert};
use crate::layers::attention::QueryKeyNorm;
use crate::layers::moe::{ExpertTensors, StackedTensors};
use crate::layers::norm::{NormScale, NormSpec};
use crate::layers::recurrent::{CellSpec, DeltaHeads, DeltaRuleSpec, RecurrentSpec};
use crate::models::ModelError;
use crate::models::common::base::{Defaults, base, set_biases};
use crate::models::config::rope::RopeDefaults;
use crate::models::config::{Fields, HfConfig, bad};
use crate::models::decoder::DecoderSpec;
use crate::models::decoder::spec::Names;

/// No head has more elements, and no layer more heads.
const MAX_SIZE: usize = 1 << 14;
/// No convolution sees more tokens.
const MAX_TAPS: usize = 64;

const EXPERTS: StackedTensors =
    StackedTensors::new(["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]);

/// What files of Qwen3-Next need not say.
pub(crate) fn complete(fields: &mut Fields<'_>) {
    fields.default("intermediate_size", 5632);
    fields.default("num_experts", 512);
    fields.default("num_experts_per_tok", 10);
    fields.default("norm_topk_prob", true);
    complete_experts(fields);
}

/// What files of Qwen3.5 with experts need not say, or can't.
pub(crate) fn complete_moe_5(fields: &mut Fields<'_>) {
    fields.default("num_experts", 256);
    fields.default("num_experts_per_tok", 8);
    complete_experts(fields);
    // There is no layer without experts.
    fields.same("intermediate_size", "moe_intermediate_size");
}

fn complete_experts(fields: &mut Fields<'_>) {
    fields.default("moe_intermediate_size", 512);
    fields.default("shared_expert_intermediate_size", 512);
}

/// What `Qwen3NextForCausalLM` means.
pub(crate) fn spec(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = common(config, 2)?;
    if config.field::<usize>("num_experts")? != Some(0) {
        with_experts(config, &mut spec)?;
    }
    Ok(spec)
}

/// What `Qwen3_5ForCausalLM` means, and `Qwen3_5ForConditionalGeneration` without pictures: then the
/// three positions of a token are one, and its rotation is the common one.
pub(crate) fn spec_5(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = common(config, 4)?;
    spec.names.roots = Names::INSIDE_OF_MORE;
    Ok(spec)
}

/// What `Qwen3_5MoeForCausalLM` means, and `Qwen3_5MoeForConditionalGeneration` without pictures.
pub(crate) fn moe_5(config: &HfConfig) -> Result<DecoderSpec, ModelError> {
    let mut spec = common(config, 2)?;
    spec.names.roots = Names::INSIDE_OF_MORE;
    with_experts(config, &mut spec)?;
    if let Some(moe) = &mut spec.moe {
        moe.layers.fill(true);
        moe.routing.renormalize = true;
    }
    Ok(spec)
}

/// Experts, in a tensor for all or in one for each, and one that all tokens go through.
fn with_experts(config: &HfConfig, spec: &mut DecoderSpec) -> Result<(), ModelError> {
    set_experts(config, spec)?;
    let shared = shared_expert(config, spec)?;
    if let Some(moe) = &mut spec.moe {
        moe.experts = ExpertTensors::StackedOrList(EXPERTS, "mlp.experts");
        moe.shared = Some(shared);
    }
    Ok(())
}

/// What all of them share.
fn common(config: &HfConfig, kv_heads: usize) -> Result<DecoderSpec, ModelError> {
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
    set_biases(&mut spec, config.attention_bias.unwrap_or(false), false);
    spec.norm = NormSpec { scale: NormScale::OnePlusStored, ..spec.norm };
    for layer in &mut spec.attention {
        layer.gated = true;
        layer.query_key_norm = Some(QueryKeyNorm::of_heads(spec.norm));
    }
    spec.recurrent = Some(RecurrentSpec {
        layers: recurrent_layers(config)?,
        name: "linear_attn",
        output: "out_proj",
        output_bias: false,
        cell: CellSpec::DeltaRule(DeltaRuleSpec {
            hidden_size: config.hidden_size,
            heads: heads(config)?,
            taps: size(config, "linear_conv_kernel_dim", 4, 2..=MAX_TAPS)?,
            activation: spec.mlp.activation,
            norm_eps: spec.norm.eps,
        }),
    });
    Ok(spec)
}

fn heads(config: &HfConfig) -> Result<DeltaHeads, ModelError> {
    let size = |name, default| size(config, name, default, 1..=MAX_SIZE);
    let heads = DeltaHeads {
        keys: size("linear_num_key_heads", 16)?,
        values: size("linear_num_value_heads", 32)?,
        key_dim: size("linear_key_head_dim", 128)?,
        value_dim: size("linear_value_head_dim", 128)?,
        // As files of another format may have them.
        tiled: config.field("linear_value_heads_tiled")?.unwrap_or(false),
    };
    if !heads.values.is_multiple_of(heads.keys) {
        let bound = format!("must be a multiple of `linear_num_key_heads` = {}", heads.keys);
        return Err(bad("linear_num_value_heads", heads.values, bound));
    }
    Ok(heads)
}

/// Which layers have no attention: as `layer_types` says, else all but every
/// `full_attention_interval`-th.
fn recurrent_layers(config: &HfConfig) -> Result<Vec<bool>, ModelError> {
    let Some(types) = &config.layer_types else {
        let interval = size(config, "full_attention_interval", 4, 1..=usize::MAX)?;
        return Ok((1..=config.num_hidden_layers).map(|i| i % interval != 0).collect());
    };
    let one = |kind: &String| match kind.as_str() {
        "linear_attention" => Ok(true),
        "full_attention" => Ok(false),
        _ => Err(bad("layer_types", kind, "supported are linear_attention and full_attention")),
    };
    types.iter().map(one).collect()
}

/// A field, or what it is where the file says nothing.
fn size(
    config: &HfConfig,
    name: &'static str,
    default: usize,
    range: std::ops::RangeInclusive<usize>,
) -> Result<usize, ModelError> {
    match config.field(name)?.unwrap_or(default) {
        size if range.contains(&size) => Ok(size),
        size => Err(bad(name, size, format!("must be {} to {}", range.start(), range.end()))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(class: &str, changes: &Value) -> Result<DecoderSpec, ModelError> {
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
