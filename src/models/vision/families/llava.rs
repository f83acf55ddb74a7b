//! LLaVA: CLIP's, SigLIP's or Pixtral's tower up to one of its last layers; two products. VipLLaVA looks behind
//! several layers and has a norm before the products; LLaVA-OneVision sees all tiles of a large picture at once.

use serde_json::Value;

use super::{pixtral, siglip};
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{Fit, Positions, Stage, Stored, TowerMlp, TowerSpec, Windows};

/// Names of the features of the end of a row of tokens, new and old.
const NEWLINE: &[&str] = &["model.image_newline", "image_newline"];

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
    projected(config, looked_at(whole, &[-2], spec)?, Vec::new())
}

/// The tower up to the layers that the file names, behind several of which hidden states are side by side.
fn looked_at(whole: VisionFields<'_>, default: &[i64], spec: TowerSpec) -> Result<TowerSpec> {
    let counts = whole.looked_at("vision_feature_layer", default, spec.layers)?;
    let layers = counts.iter().copied().max().unwrap_or(spec.layers);
    let gathered = if counts.len() > 1 { counts } else { Vec::new() };
    Ok(TowerSpec { layers, gathered, last_norm: None, ..spec })
}

/// The tower with two products behind these stages.
fn projected(config: &Value, spec: TowerSpec, mut stages: Vec<Stage>) -> Result<TowerSpec> {
    let whole = VisionFields(config);
    let output = VisionFields(&config["text_config"]).size("hidden_size", 4096)?;
    let bias = config["multimodal_projector_bias"].as_bool().unwrap_or(true);
    stages.extend([
        Stage::Product("linear_1", output, bias),
        Stage::Activation(whole.activation_of("projector_hidden_act", "gelu")?),
        Stage::Product("linear_2", output, bias),
    ]);
    TowerSpec { connector: stages, output, ..spec }.checked()
}

/// The tower of a `config.json` of LLaVA-NeXT.
pub(super) fn next(config: &Value) -> Result<TowerSpec> {
    Ok(TowerSpec { separator: NEWLINE, ..spec(config)? })
}

/// The tower of a `config.json` of VipLLaVA.
pub(super) fn vip(config: &Value) -> Result<TowerSpec> {
    let whole = VisionFields(config);
    let spec = clip(VisionFields(&config["vision_config"]))?;
    let norm = NormSpec::layer(whole.eps("projector_layernorm_eps", 1e-5)?, true);
    let spec = looked_at(whole, &[-2, -5, -8, -11, 6], spec)?;
    projected(config, spec, vec![Stage::Norm("projector_layernorm", norm)])
}

/// The tower of a `config.json` of LLaVA-OneVision: each tile is a window of a picture that may have several.
pub(super) fn one_vision(config: &Value) -> Result<TowerSpec> {
    let (fields, whole) = (VisionFields(&config["vision_config"]), VisionFields(config));
    let kind = config["vision_config"]["model_type"].as_str().unwrap_or("siglip_vision_model");
    if kind != "siglip_vision_model" {
        return Err(bad("vision_config.model_type", kind, "supported is siglip_vision_model"));
    }
    let name = "vision_feature_select_strategy";
    let strategy = config[name].as_str().unwrap_or("full");
    if strategy != "full" {
        return Err(bad(name, strategy, "must be `full`: there is no class token"));
    }
    let spec = looked_at(whole, &[-1], siglip::tower(fields)?)?;
    let positions = spec.positions.map(|positions| Positions { fit: Fit::Tiled, ..positions });
    let side = positions.map_or(1, |positions| positions.side);
    let spec = TowerSpec {
        positions,
        windows: Some(Windows { side, whole: Vec::new() }),
        separator: NEWLINE,
        ..spec
    };
    projected(config, spec, Vec::new())
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
