//! Idefics 3 and SmolVLM: SigLIP's tower for tiles of any size; one product for the patches of a token.

use serde_json::Value;

use super::siglip;
use crate::models::error::Result;
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{Fit, Positions, Roots, Stage, Stored, TowerSpec};

const ROOTS: &[Roots] = &[Roots { tower: "model.vision_model.", connector: "model.connector." }];

/// The tower of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(&config["vision_config"]);
    let spec = siglip::tower(fields)?;
    let patch = fields.square("patch_size", 32)?;
    let output = VisionFields(&config["text_config"]).size("hidden_size", 4096)?;
    TowerSpec {
        roots: ROOTS,
        patch,
        merge: VisionFields(config).size("scale_factor", 2)?,
        positions: Some(Positions {
            stored: Stored::plain("embeddings.position_embedding.weight"),
            side: fields.square("image_size", 224)? / patch,
            fit: Fit::Shares,
        }),
        hidden: fields.size("hidden_size", 1152)?,
        heads: fields.size("num_attention_heads", 16)?,
        connector: vec![Stage::Join, Stage::Product("modality_projection.proj", output, false)],
        output,
        ..spec
    }
    .checked()
}
