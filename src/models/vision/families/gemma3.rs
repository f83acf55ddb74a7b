//! Gemma 3: SigLIP's tower; the mean of the patches of a token, a norm and a product. PaliGemma has a product of
//! every patch alone.

use serde_json::Value;

use super::siglip;
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{Stage, TowerSpec};

/// The tower of a `config.json` of PaliGemma.
pub(super) fn pali(config: &Value) -> Result<TowerSpec> {
    let spec = siglip::tower(VisionFields(&config["vision_config"]))?;
    let output = VisionFields(&config["text_config"]).size("hidden_size", 2048)?;
    let given = VisionFields(config).size("projection_dim", 2048)?;
    if given != output {
        let bound = format!("must be the text's `hidden_size` = {output}");
        return Err(bad("projection_dim", given, bound));
    }
    let connector = vec![Stage::Product("linear", output, true)];
    TowerSpec { connector, output, ..spec }.checked()
}

/// The tower of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let (fields, whole) = (VisionFields(&config["vision_config"]), VisionFields(config));
    let spec = siglip::tower(fields)?;
    let (tokens, side) =
        (whole.size("mm_tokens_per_image", 256)?, fields.square("image_size", 224)?);
    let (grid, across) = (side / spec.patch, tokens.isqrt());
    if across * across != tokens || !grid.is_multiple_of(across) {
        let bound = format!("must be a square number whose root divides {grid}");
        return Err(bad("mm_tokens_per_image", tokens, bound));
    }
    let output = VisionFields(&config["text_config"]).size("hidden_size", 2304)?;
    let norm = NormSpec {
        scale: NormScale::OnePlusStored,
        ..NormSpec::rms(fields.eps("layer_norm_eps", 1e-6)?)
    };
    TowerSpec {
        merge: grid / across,
        connector: vec![
            Stage::Mean,
            Stage::Norm("mm_soft_emb_norm", norm),
            Stage::Matrix("mm_input_projection_weight", output),
        ],
        output,
        ..spec
    }
    .checked()
}
