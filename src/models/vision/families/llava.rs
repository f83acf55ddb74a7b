//! LLaVA: CLIP's, SigLIP's or Pixtral's tower up to one of its last layers; two products.

use serde_json::Value;

use super::{pixtral, siglip};
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::spec::{Positions, Stage, Stored, TowerMlp, TowerSpec, VisionFields};

/// The tower of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let (fields, whole) = (VisionFields(&config["vision_config"]), VisionFields(config));
    let kind = config["vision_config"]["model_type"].as_str().unwrap_or("clip_vision_model");
    let spec = match kind {
        "clip_vision_model" => clip(fields)?,
        "siglip_vision_model" => TowerSpec { last_norm: None, ..siglip::tower(fields)? },
        "pixtral" => pixtral::tower(fields)?,
        _ => {
            let bound = "supported are clip_vision_model, siglip_vision_model and pixtral";
            return Err(bad("vision_config.model_type", kind, bound));
        }
    };
    // The first of the tower's own embeddings is left out, or there is none.
    let name = "vision_feature_select_strategy";
    let strategy = config[name].as_str().unwrap_or("default");
    if (strategy == "default") != spec.class_token.is_some() {
        let bound = "must be `default` with a class token, and `full` without one";
        return Err(bad(name, strategy, bound));
    }
    let output = VisionFields(&config["text_config"]).size("hidden_size", 4096)?;
    let bias = config["multimodal_projector_bias"].as_bool().unwrap_or(true);
    TowerSpec {
        layers: whole.computed_layers("vision_feature_layer", -2, spec.layers)?,
        connector: vec![
            Stage::Product("linear_1", output, bias),
            Stage::Activation(whole.activation_of("projector_hidden_act", "gelu")?),
            Stage::Product("linear_2", output, bias),
        ],
        output,
        ..spec
    }
    .checked()
}

/// The tower of a `config.json` of LLaVA-NeXT.
pub(super) fn next(config: &Value) -> Result<TowerSpec> {
    Ok(TowerSpec { separator: &["model.image_newline", "image_newline"], ..spec(config)? })
}

/// CLIP's tower up to its last layer: SigLIP's with a class token and a norm before the layers.
fn clip(fields: VisionFields<'_>) -> Result<TowerSpec> {
    let norm = NormSpec::layer(fields.eps("layer_norm_eps", 1e-5)?, true);
    let spec = siglip::tower(fields)?;
    let patch = fields.square("patch_size", 14)?;
    let side = fields.square("image_size", 336)? / patch;
    Ok(TowerSpec {
        patch,
        patch_bias: false,
        class_token: Some(Stored::plain("embeddings.class_embedding")),
        positions: spec.positions.map(|positions| Positions { side, ..positions }),
        hidden: fields.size("hidden_size", 1024)?,
        heads: fields.size("num_attention_heads", 16)?,
        layers: fields.size("num_hidden_layers", 24)?,
        first_norm: Some(("pre_layrnorm", norm)),
        norm,
        mlp: TowerMlp {
            intermediate: fields.size("intermediate_size", 4096)?,
            activation: fields.activation("quick_gelu")?,
            ..spec.mlp
        },
        last_norm: None,
        ..spec
    })
}
