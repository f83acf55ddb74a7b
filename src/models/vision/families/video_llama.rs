//! VideoLLaMA 3: SigLIP's tower with a rotary embedding in place of learned positions, for pictures of any size;
//! two products.

use serde_json::Value;

use super::siglip;
use crate::kernels::pointwise::Activation;
use crate::models::error::Result;
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Roots, RopeLayout, Stage, TowerActivation, TowerRope, TowerSpec,
};

const ROOTS: &[Roots] = &[Roots { tower: "model.vision_model.", connector: "model.projector." }];

/// The tower of a `config.json`. A still picture has a token for each patch.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(&config["vision_config"]);
    let output = VisionFields(&config["text_config"]).size("hidden_size", 4096)?;
    TowerSpec {
        roots: ROOTS,
        positions: None,
        rope: Some(TowerRope { theta: fields.rope_theta_or(10_000.0)?, layout: RopeLayout::Joint }),
        connector: vec![
            Stage::Product("readout.0", output, true),
            Stage::Activation(TowerActivation::Common(Activation::Gelu)),
            Stage::Product("readout.2", output, true),
        ],
        output,
        ..siglip::tower(fields)?
    }
    .checked()
}
