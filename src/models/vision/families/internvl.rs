//! InternVL: a class token, factors of what layers give; a norm and two products for the patches of a
//! token.

use serde_json::Value;

use super::siglip;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::spec::{
    Biases, Fit, PatchForm, Positions, Qkv, Stage, Stored, TowerMlp, TowerNames, TowerSpec,
    VisionFields,
};

/// The tower of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let (vision, whole) = (&config["vision_config"], VisionFields(config));
    let fields = VisionFields(vision);
    let hidden = fields.size("hidden_size", 1024)?;
    let patch = fields.square("patch_size", 14)?;
    let eps = fields.eps("layer_norm_eps", 1e-6)?;
    let norm = match vision["norm_type"].as_str().unwrap_or("layer_norm") {
        "layer_norm" => NormSpec::layer(eps, true),
        "rms_norm" => NormSpec::rms(eps),
        other => return Err(bad("norm_type", other, "supported are layer_norm and rms_norm")),
    };
    check(config)?;
    let ratio = config["downsample_ratio"].as_f64().unwrap_or(0.5);
    let power = [1.0, 2.0, 4.0].iter().position(|side| (ratio * side - 1.0).abs() < 1e-9);
    let Some(power) = power else {
        return Err(bad("downsample_ratio", ratio, "must be 1, 0.5 or 0.25"));
    };
    let merge = 1 << power;
    let output = VisionFields(&config["text_config"]).size("hidden_size", 896)?;
    let biased = vision["attention_bias"].as_bool().unwrap_or(false);
    let mean = vision["use_mean_pooling"].as_bool().unwrap_or(true);
    TowerSpec {
        roots: siglip::ROOTS,
        names: TowerNames {
            patches: "embeddings.patch_embeddings.projection",
            layers: "encoder.layer",
            norms: ["layernorm_before", "layernorm_after"],
            qkv: Qkv::Apart(["attention.q_proj", "attention.k_proj", "attention.v_proj"]),
            output: "attention.projection_layer",
        },
        patch,
        merge,
        patches: PatchForm::Picture,
        patch_bias: true,
        patch_norms: [None; 2],
        class_token: Some(Stored { name: "embeddings.cls_token", batched: true }),
        positions: Some(Positions {
            stored: Stored { name: "embeddings.position_embeddings", batched: true },
            side: fields.square("image_size", 448)? / patch,
            fit: Fit::Whole,
        }),
        rope: None,
        hidden,
        heads: fields.size("num_attention_heads", 16)?,
        layers: fields.size("num_hidden_layers", 24)?,
        first_norm: None,
        norm,
        attention_biases: if biased { Biases::All } else { Biases::Output },
        normed_heads: None,
        after_norms: None,
        bounded: false,
        mlp: TowerMlp {
            intermediate: fields.size("intermediate_size", 4096)?,
            activation: fields.activation("gelu")?,
            gate: None,
            names: ["mlp.fc1", "mlp.fc2"],
            bias: true,
        },
        scales: Some(["lambda_1", "lambda_2"]),
        windows: None,
        last_norm: (!mean).then_some(("layernorm", NormSpec::layer(eps, true))),
        connector: vec![
            Stage::Join,
            Stage::Norm("layer_norm", NormSpec::layer(1e-5, true)),
            Stage::Product("linear_1", output, true),
            Stage::Activation(whole.activation_of("projector_hidden_act", "gelu")?),
            Stage::Product("linear_2", output, true),
        ],
        deepstack: Vec::new(),
        deepstack_connector: Vec::new(),
        separator: &[],
        output,
    }
    .checked()
}

/// Refuses what published models don't have.
fn check(config: &Value) -> Result<()> {
    let vision = &config["vision_config"];
    for (field, supported) in [("use_qk_norm", false), ("use_absolute_position_embeddings", true)] {
        let value = vision[field].as_bool().unwrap_or(supported);
        if value != supported {
            return Err(bad(field, value, format!("supported is {supported}")));
        }
    }
    let strategy = config["vision_feature_select_strategy"].as_str().unwrap_or("default");
    let layer = config["vision_feature_layer"].as_i64().unwrap_or(-1);
    if strategy != "default" || layer != -1 {
        let bound = "supported are `default` and the last layer";
        return Err(bad("vision_feature_select_strategy", format!("{strategy} of {layer}"), bound));
    }
    Ok(())
}
