//! LFM2-VL: SigLIP 2's tower, whose square of positions is resized to each picture; a norm and two
//! products for the patches of a token.

use serde_json::Value;

use super::siglip;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{Fit, PatchForm, Positions, Stage, Stored, TowerSpec};

/// The tower of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let (fields, whole) = (VisionFields(&config["vision_config"]), VisionFields(config));
    let positions = fields.size("num_patches", 256)?;
    let side = positions.isqrt();
    if side * side != positions {
        return Err(bad("num_patches", positions, "must be a square number"));
    }
    let spec = siglip::tower(fields)?;
    let output = VisionFields(&config["text_config"]).size("hidden_size", 2560)?;
    let (inner, bias) = (
        whole.size("projector_hidden_size", 2560)?,
        config["projector_bias"].as_bool().unwrap_or(true),
    );
    let mut connector = vec![Stage::Join];
    if config["projector_use_layernorm"].as_bool().unwrap_or(true) {
        connector.push(Stage::Norm("layer_norm", NormSpec::layer(1e-5, true)));
    }
    connector.extend([
        Stage::Product("linear_1", inner, bias),
        Stage::Activation(whole.activation_of("projector_hidden_act", "gelu")?),
        Stage::Product("linear_2", output, bias),
    ]);
    TowerSpec {
        merge: whole.size("downsample_factor", 2)?,
        patches: PatchForm::Pixels,
        positions: Some(Positions {
            stored: Stored::plain("embeddings.position_embedding.weight"),
            side,
            fit: Fit::Resized,
        }),
        connector,
        output,
        ..spec
    }
    .checked()
}
