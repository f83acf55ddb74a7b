//! Idefics 2: SigLIP's tower for pictures of any size; a gated feed-forward part to the width of the decoder, and
//! queries that see all patches in several layers.

use serde_json::Value;

use super::siglip;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{Fit, PerceiverSpec, Positions, Roots, Stage, TowerSpec};

const ROOTS: &[Roots] = &[Roots { tower: "model.vision_model.", connector: "model.connector." }];

/// The tower of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(&config["vision_config"]);
    let perceiver = VisionFields(&config["perceiver_config"]);
    let text = VisionFields(&config["text_config"]);
    let (width, inner) = (text.size("hidden_size", 4096)?, text.size("intermediate_size", 14_336)?);
    let heads =
        [perceiver.size("resampler_n_heads", 16)?, perceiver.size("num_key_value_heads", 4)?];
    if !heads[0].is_multiple_of(heads[1]) {
        let bound = format!("must divide `resampler_n_heads`, which is {}", heads[0]);
        return Err(bad("perceiver_config.num_key_value_heads", heads[1], bound));
    }
    // Where the file says another width than the decoder's, it was not meant for this.
    let eps = if perceiver.size("hidden_size", 4096)? == width {
        perceiver.eps("rms_norm_eps", 1e-6)?
    } else {
        text.eps("rms_norm_eps", 1e-5)?
    };
    let resampler = PerceiverSpec {
        name: "perceiver_resampler",
        latents: perceiver.size("resampler_n_latents", 64)?,
        layers: perceiver.size("resampler_depth", 3)?,
        heads,
        head_dim: perceiver.size("resampler_head_dim", 96)?,
        inner: 4 * width,
        activation: perceiver.activation("silu")?,
        norm: NormSpec::rms(eps),
    };
    let projection = [
        "modality_projection.gate_proj",
        "modality_projection.up_proj",
        "modality_projection.down_proj",
    ];
    let (spec, patch) = (siglip::tower(fields)?, fields.square("patch_size", 32)?);
    let side = fields.square("image_size", 224)? / patch;
    TowerSpec {
        roots: ROOTS,
        patch,
        positions: spec.positions.map(|positions| Positions {
            side,
            fit: Fit::Shares,
            ..positions
        }),
        connector: vec![
            Stage::Gated(projection, [inner, width], text.activation("silu")?),
            Stage::Perceive(resampler),
        ],
        output: width,
        ..spec
    }
    .checked()
}
