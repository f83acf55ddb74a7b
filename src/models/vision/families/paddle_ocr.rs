//! PaddleOCR-VL: SigLIP's tower for pictures of any size, with positions between those that were learned
//! and a rotary embedding besides; a norm and two products for the patches of a token.

use serde_json::Value;

use super::{qwen2_vl, siglip};
use crate::layers::norm::NormSpec;
use crate::models::error::Result;
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Fit, Positions, Roots, RopeLayout, TowerMlp, TowerRope, TowerSpec,
};

const ROOTS: &[Roots] = &[
    Roots { tower: "model.visual.vision_model.", connector: "model.projector." },
    Roots { tower: "visual.vision_model.", connector: "mlp_AR." },
];
/// Epsilon of the connector's norm.
const EPS: f32 = 1e-5;

/// The tower of a `config.json`, whose first version has the text's fields beside the tower's.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(&config["vision_config"]);
    let text = if config["text_config"].is_object() { &config["text_config"] } else { config };
    let output = VisionFields(text).size("hidden_size", 1024)?;
    let spec = siglip::tower(fields)?;
    let (hidden, merge) =
        (fields.size("hidden_size", 1152)?, fields.size("spatial_merge_size", 2)?);
    let patch = fields.square("patch_size", 14)?;
    let side = fields.square("image_size", 384)? / patch;
    let (norm, names) = (NormSpec::layer(EPS, true), ["pre_norm", "linear_1", "linear_2"]);
    TowerSpec {
        roots: ROOTS,
        patch,
        merge,
        positions: spec.positions.map(|positions| Positions {
            side,
            fit: Fit::Between,
            ..positions
        }),
        rope: Some(TowerRope { theta: fields.rope_theta_or(10_000.0)?, layout: RopeLayout::Joint }),
        hidden,
        heads: fields.size("num_attention_heads", 16)?,
        layers: fields.size("num_hidden_layers", 27)?,
        mlp: TowerMlp { intermediate: fields.size("intermediate_size", 4304)?, ..spec.mlp },
        connector: qwen2_vl::merger(norm, hidden * merge * merge, output, names, false),
        output,
        ..spec
    }
    .checked()
}
