//! ERNIE 4.5: Llama with an interleaved rotary embedding, a tied head, and one switch for all
//! biases. Its mixture of experts has softmax scores with a correction bias, in some layers, beside
//! a shared expert. The decoder of PaddleOCR-VL tells time, rows and columns of pictures apart.

use super::qwen_vl::with_axes;
use crate::layers::moe::CorrectionBias;
use crate::models::common::{
    Architecture, DecoderSpec, Defaults, ExpertFields, HfConfig, Result, RopeDefaults, base,
    experts, set_biases, set_interleaved_rope, shared_experts,
};

pub(super) const CLASSES: &[Architecture] = &[
    Architecture::new("Ernie4_5ForCausalLM", spec),
    Architecture::new("Ernie4_5_MoeForCausalLM", moe),
    Architecture::new("PaddleOCRVLForConditionalGeneration", paddle_ocr),
];

const DEFAULTS: Defaults = Defaults {
    kv_heads: Some(2),
    head_dim: Some(128),
    context: 131_072,
    norm_eps: 1e-5,
    tied: true,
    rope: RopeDefaults { theta: 500_000.0, ..Defaults::LLAMA.rope },
    ..Defaults::LLAMA
};

fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    with_defaults(config, &DEFAULTS)
}

/// The decoder of PaddleOCR-VL, whose heads are rotated half by half.
fn paddle_ocr(config: &HfConfig) -> Result<DecoderSpec> {
    with_axes(config, dense(config, &DEFAULTS)?, [16, 24, 24], false)
}

fn with_defaults(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec> {
    let mut spec = dense(config, defaults)?;
    set_interleaved_rope(&mut spec);
    Ok(spec)
}

fn dense(config: &HfConfig, defaults: &Defaults) -> Result<DecoderSpec> {
    let mut spec = base(config, defaults)?;
    let bias = config.field_or("use_bias", false)?;
    set_biases(&mut spec, bias, bias);
    Ok(spec)
}

fn moe(config: &HfConfig) -> Result<DecoderSpec> {
    config.only("use_bias", false)?;
    config.only("moe_norm_min", 1e-12)?;
    let defaults = Defaults { kv_heads: Some(4), head_dim: None, ..DEFAULTS };
    let mut spec = with_defaults(config, &defaults)?;
    let fields = ExpertFields { chosen: "moe_k", ..ExpertFields::COMMON };
    let mut moe = experts(config, &spec, &fields)?;
    let layers = config.num_hidden_layers;
    let interval = config.field_or("moe_layer_interval", 1usize)?.max(1);
    let first = config.field_or("moe_layer_start_index", 1)?;
    // -1: the last layer.
    let last = config.field_or("moe_layer_end_index", -1i64)?;
    let last = usize::try_from(last).unwrap_or(layers);
    let sparse =
        |layer: usize| (first..=last).contains(&layer) && (layer + 1).is_multiple_of(interval);
    moe.layers = (0..layers).map(sparse).collect();
    moe.routing.renormalize = true;
    moe.correction_bias =
        Some(CorrectionBias { name: "mlp.moe_statics.e_score_correction_bias", one_row: true });
    let shared = config.field_or("moe_num_shared_experts", 2)?;
    moe.shared = shared_experts(&moe, shared);
    spec.moe = Some(moe);
    Ok(spec)
}
