//! MiniCPM-V: SigLIP's tower for pictures of any size. From 4.6 on squares of patches are merged between two
//! layers and again at the end; before, a resampler makes the tokens.

use serde_json::Value;

use super::siglip;
use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Fit, Merger, Positions, Roots, Stage, TowerActivation, TowerSpec,
};

const ROOTS: &[Roots] = &[Roots { tower: "model.vision_tower.", connector: "model.merger.mlp.0." }];
const RESAMPLED_ROOTS: &[Roots] = &[Roots { tower: "vpm.", connector: "resampler." }];
/// Epsilon of the connectors' norms, which no field says.
const EPS: f32 = 1e-6;
/// Elements of a head of a resampler.
const RESAMPLER_HEAD: usize = 128;

/// The tower of a `config.json` of MiniCPM-V 4.6.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    merging(config, "16x")
}

/// The tower of a `config.json` of MiniCPM-OCR.
pub(super) fn ocr(config: &Value) -> Result<TowerSpec> {
    merging(config, "4x")
}

fn merging(config: &Value, mode: &str) -> Result<TowerSpec> {
    let (fields, whole) = (VisionFields(&config["vision_config"]), VisionFields(config));
    for (name, field) in [
        ("merge_kernel_size", &config["merge_kernel_size"]),
        ("window_kernel_size", &config["vision_config"]["window_kernel_size"]),
    ] {
        if !field.is_null() && *field != serde_json::json!([2, 2]) {
            return Err(bad(name, field, "supported is [2, 2]"));
        }
    }
    let rounds = whole.size("merger_times", 1)?;
    if rounds != 1 {
        return Err(bad("merger_times", rounds, "supported is 1"));
    }
    let early = match config["downsample_mode"].as_str().unwrap_or(mode) {
        "16x" => true,
        "4x" => false,
        other => return Err(bad("downsample_mode", other, "supported are 16x and 4x")),
    };
    let spec = tower(fields)?;
    let (hidden, inner) = (spec.hidden, spec.mlp.intermediate);
    let layer = config["insert_layer_id"].as_i64().unwrap_or(6);
    let layer = usize::try_from(layer)
        .map_err(|_| bad("insert_layer_id", layer, "must be a layer, from 0"))?;
    let gelu = |tanh| {
        let activation = if tanh { Activation::GeluTanh } else { Activation::Gelu };
        Stage::Activation(TowerActivation::Common(activation))
    };
    let merger = Merger {
        name: "vit_merger",
        layer,
        norm: "layer_norm1",
        stages: vec![
            Stage::Join,
            Stage::Norm("pre_norm", spec.norm),
            Stage::Product("linear_1", 4 * inner, true),
            gelu(true),
            Stage::Product("linear_2", hidden, true),
        ],
    };
    let output = VisionFields(&config["text_config"]).size("hidden_size", 4096)?;
    TowerSpec {
        roots: ROOTS,
        merge: if early { 4 } else { 2 },
        merger: early.then_some(merger),
        connector: vec![
            Stage::Join,
            Stage::Norm("pre_norm", NormSpec::layer(EPS, true)),
            Stage::Product("linear_1", 4 * hidden, true),
            gelu(false),
            Stage::Product("linear_2", output, true),
        ],
        output,
        ..spec
    }
    .checked()
}

/// The tower of a `config.json` of MiniCPM-V 2.6 to 4.5, whose decoder's fields stand beside the tower's.
pub(super) fn resampled(config: &Value) -> Result<TowerSpec> {
    let (fields, whole) = (VisionFields(&config["vision_config"]), VisionFields(config));
    let spec = tower(fields)?;
    let output = whole.size("hidden_size", 3584)?;
    if !output.is_multiple_of(RESAMPLER_HEAD) {
        let bound = "must be a multiple of 128, the elements of a head of the resampler";
        return Err(bad("hidden_size", output, bound));
    }
    let norm = NormSpec::layer(EPS, true);
    let dropped = usize::from(config["drop_vision_last_layer"].as_bool() == Some(true));
    TowerSpec {
        roots: RESAMPLED_ROOTS,
        layers: spec.layers - dropped,
        connector: vec![
            Stage::Product("kv_proj", output, false),
            Stage::Norm("ln_kv", norm),
            Stage::Resample([whole.size("query_num", 64)?, output / RESAMPLER_HEAD], norm),
            Stage::Norm("ln_post", norm),
            Stage::Matrix("proj", output),
        ],
        output,
        ..spec
    }
    .checked()
}

/// SigLIP's, whose square of positions is laid on pictures of any size.
fn tower(fields: VisionFields<'_>) -> Result<TowerSpec> {
    let spec = siglip::tower(fields)?;
    let positions = spec.positions.map(|own| Positions { fit: Fit::Shares, ..own });
    Ok(TowerSpec { positions, ..spec })
}
