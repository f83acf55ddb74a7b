//! The decoders of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: Qwen2 and Qwen3 whose rotary embedding tells
//! time, rows and columns of pictures apart. Pairs of elements are together by axis, from Qwen3-VL on
//! they take turns; there features of pictures are added after several layers.

use serde_json::Value;

use super::{qwen_moe, qwen2, qwen3};
use crate::layers::moe::{ExpertTensors, StackedTensors};
use crate::models::common::{Architecture, DecoderSpec, HfConfig, Names, Result};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Qwen2VLForConditionalGeneration", spec_2),
    Architecture::new("Qwen2_5_VLForConditionalGeneration", spec_2),
    Architecture::new("Qwen3VLForConditionalGeneration", spec_3),
    Architecture::new("Qwen3VLMoeForConditionalGeneration", moe_3),
    Architecture::new("Qwen2_5OmniModel", spec_2),
    Architecture::new("Qwen2_5OmniForConditionalGeneration", spec_2),
    Architecture::new("Qwen3OmniMoeForConditionalGeneration", omni_3),
    Architecture::new("Qwen2_5OmniThinkerForConditionalGeneration", spec_2),
    Architecture::new("Qwen3OmniMoeThinkerForConditionalGeneration", omni_3),
];

const EXPERTS: StackedTensors = StackedTensors {
    transposed: true,
    ..StackedTensors::new(["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])
};

/// Layers of Qwen3-VL's tower whose features are for layers of the decoder.
const DEEPSTACK: usize = 3;

fn spec_2(config: &HfConfig) -> Result<DecoderSpec> {
    with_axes(config, qwen2::spec(config)?, [16, 24, 24], false)
}

fn spec_3(config: &HfConfig) -> Result<DecoderSpec> {
    with_deepstack(config, qwen3::spec(config)?)
}

fn moe_3(config: &HfConfig) -> Result<DecoderSpec> {
    let mut spec = with_deepstack(config, qwen_moe::spec_3(config)?)?;
    if let Some(moe) = &mut spec.moe {
        moe.routing.renormalize = true;
        moe.experts = ExpertTensors::StackedOrList(EXPERTS, "mlp.experts");
    }
    Ok(spec)
}

fn omni_3(config: &HfConfig) -> Result<DecoderSpec> {
    let spec = qwen_moe::spec_3(config)?;
    // Without a tower there are no features for layers, of which there may be few.
    let sees = config.field::<Value>("vision_config")?.is_some_and(|vision| vision.is_object());
    let mut spec = if sees {
        with_deepstack(config, spec)?
    } else {
        with_axes(config, spec, [24, 20, 20], true)?
    };
    if let Some(moe) = &mut spec.moe {
        moe.routing.renormalize = config.field_or("norm_topk_prob", true)?;
    }
    Ok(spec)
}

fn with_deepstack(config: &HfConfig, spec: DecoderSpec) -> Result<DecoderSpec> {
    let mut spec = with_axes(config, spec, [24, 20, 20], true)?;
    let vision = config.field::<Value>("vision_config")?.unwrap_or_default();
    let given = vision["deepstack_visual_indexes"].as_array().map(Vec::len);
    spec.picture_layers = given.unwrap_or(DEEPSTACK);
    Ok(spec)
}

/// The decoder as a part of a model that sees, with numbers of pairs by default.
pub(super) fn with_axes(
    config: &HfConfig,
    mut spec: DecoderSpec,
    sections: [usize; 3],
    interleaved: bool,
) -> Result<DecoderSpec> {
    spec.names.roots = Names::MULTIMODAL_ROOTS;
    for rope in &mut spec.ropes {
        rope.axes = config.rope_axes(rope.rotary_dim, sections, interleaved)?;
    }
    Ok(spec)
}
