//! Command A Vision and Aya Vision: SigLIP's tower, two products for the patches of a token with a gate
//! between them, and, in Aya Vision, a norm first.

use serde_json::Value;

use super::siglip;
use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{Stage, TowerActivation, TowerSpec};

/// The tower of a `config.json` of Command A Vision.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let inner = VisionFields(config).size("alignment_intermediate_size", 36_864)?;
    let spec = siglip::tower(VisionFields(&config["vision_config"]))?;
    with(config, spec, None, inner)
}

/// The tower of a `config.json` of Aya Vision.
pub(super) fn aya(config: &Value) -> Result<TowerSpec> {
    let whole = VisionFields(config);
    let name = "vision_feature_select_strategy";
    let strategy = config[name].as_str().unwrap_or("full");
    if strategy != "full" {
        return Err(bad(name, strategy, "must be `full`: there is no class token"));
    }
    let width = VisionFields(&config["text_config"]).size("hidden_size", 8192)?;
    let inner = whole.size("alignment_intermediate_size", width)?;
    let spec = siglip::tower(VisionFields(&config["vision_config"]))?;
    let layers = whole.computed_layers("vision_feature_layer", -1, spec.layers)?;
    // The norm behind the last layer belongs to none of the layers.
    let spec = TowerSpec { layers, last_norm: None, ..spec };
    let norm = NormSpec::layer(whole.eps("adapter_layer_norm_eps", 1e-6)?, true);
    with(config, spec, Some(Stage::Norm("layernorm", norm)), inner)
}

fn with(config: &Value, spec: TowerSpec, norm: Option<Stage>, inner: usize) -> Result<TowerSpec> {
    if !inner.is_multiple_of(2) {
        return Err(bad("alignment_intermediate_size", inner, "must be even"));
    }
    let output = VisionFields(&config["text_config"]).size("hidden_size", 8192)?;
    let silu = TowerActivation::Common(Activation::Silu);
    let projector = [
        Stage::Product("linear_1", inner, true),
        Stage::Halves(silu),
        Stage::Product("linear_2", output, true),
    ];
    TowerSpec {
        merge: VisionFields(config).size("downsample_factor", 2)?,
        connector: [Stage::Join].into_iter().chain(norm).chain(projector).collect(),
        output,
        ..spec
    }
    .checked()
}
