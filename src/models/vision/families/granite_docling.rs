//! Granite Docling: SigLIP's tower for tiles of one size; norms, a product for the patches of a token, whose place
//! in its tile is added, and another product. Features for several layers of the decoder are made as InternVL makes
//! its own.

use serde_json::Value;

use super::siglip;
use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{Positions, Roots, Stage, TowerActivation, TowerSpec};

const ROOTS: &[Roots] =
    &[Roots { tower: "model.vision_model.", connector: "model.vision_model.connector." }];
/// Epsilon of the connector's norms, by PyTorch's default.
const EPS: f32 = 1e-5;
/// The multiplier of the decoder's embeddings, which those of pictures are multiplied with, too.
const EMBEDDING_MULTIPLIER: f64 = 12.0;

/// The tower of a `config.json`, by the coarser of its two ways.
#[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(&config["vision_config"]);
    let (patch, merge) = (fields.square("patch_size", 16)?, fields.size("scale_factor", 4)?);
    let side = fields.square("image_size", 512)? / patch;
    if !side.is_multiple_of(merge) {
        let bound = format!("must divide the {side} patches of a side");
        return Err(bad("scale_factor", merge, bound));
    }
    let output = fields.size("out_hidden_size", 1024)?;
    if !output.is_multiple_of(4) {
        return Err(bad("out_hidden_size", output, "must be a multiple of 4"));
    }
    let mut deepstack = fields.layers("deepstack_visual_indexes", &[3, 7, 10])?;
    deepstack.sort_unstable();
    let scale = config["text_config"]["embedding_multiplier"].as_f64();
    let (norm, gelu) = (NormSpec::layer(EPS, true), TowerActivation::Common(Activation::Gelu));
    let spec = siglip::tower(fields)?;
    TowerSpec {
        roots: ROOTS,
        patch,
        merge,
        positions: spec.positions.map(|positions| Positions { side, ..positions }),
        connector: vec![
            Stage::Norm("ln_in", norm),
            Stage::Join,
            Stage::Product("coarse.projection", output, false),
            Stage::Placed(side / merge),
            Stage::Norm("ln_mid", norm),
            Stage::Activation(gelu),
            Stage::Product("mlp_fc2", output, false),
            Stage::Norm("ln_out", norm),
            Stage::Scale(scale.unwrap_or(EMBEDDING_MULTIPLIER) as f32),
        ],
        deepstack,
        deepstack_list: "connector.coarse.deepstack_mergers",
        deepstack_connector: vec![
            Stage::Join,
            Stage::Norm("layer_norm", norm),
            Stage::Product("linear_1", output, true),
            Stage::Activation(gelu),
            Stage::Product("linear_2", output, true),
        ],
        output,
        ..spec
    }
    .checked()
}
