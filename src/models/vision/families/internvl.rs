//! InternVL: a class token, factors of what layers give; a norm and two products for the patches of a
//! token.

use serde_json::{Value, json};

use super::siglip;
use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Biases, Fit, PatchForm, Positions, Qkv, Roots, Stage, Stored, TowerActivation, TowerMlp,
    TowerNames, TowerSpec,
};

/// Prefixes of names in checkpoints with code of their own.
const CHAT_ROOTS: &[Roots] = &[Roots { tower: "vision_model.", connector: "mlp1." }];

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
        class_token: Some(Stored::batched("embeddings.cls_token")),
        positions: Some(Positions {
            stored: Stored::batched("embeddings.position_embeddings"),
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
        merger: None,
        last_norm: (!mean).then_some(("layernorm", NormSpec::layer(eps, true))),
        connector: vec![
            Stage::Join,
            Stage::Norm("layer_norm", NormSpec::layer(1e-5, true)),
            Stage::Product("linear_1", output, true),
            Stage::Activation(whole.activation_of("projector_hidden_act", "gelu")?),
            Stage::Product("linear_2", output, true),
        ],
        deepstack: Vec::new(),
        deepstack_list: "deepstack_merger_list",
        deepstack_connector: Vec::new(),
        gathered: Vec::new(),
        separator: &[],
        marks: None,
        output,
    }
    .checked()
}

/// The tower of a `config.json` of `InternVLChatModel`, the class of checkpoints with code of their own.
pub(super) fn chat(config: &Value) -> Result<TowerSpec> {
    let (vision, text) = (&config["vision_config"], VisionFields(&config["llm_config"]));
    for (field, given, supported) in [
        ("select_layer", &config["select_layer"], json!(-1)),
        ("ps_version", &config["ps_version"], json!("v2")),
        ("qk_normalization", &vision["qk_normalization"], json!(false)),
    ] {
        // Only of this field the default is not what is supported.
        let told = !given.is_null() || field == "ps_version";
        if told && *given != supported {
            return Err(bad(field, given, format!("supported is {supported}")));
        }
    }
    let own = json!({
        "downsample_ratio": config["downsample_ratio"],
        "text_config": {"hidden_size": text.size("hidden_size", 896)?},
        "vision_config": vision,
    });
    let spec = spec(&own)?;
    let biased = vision["qkv_bias"].as_bool().unwrap_or(true);
    let stages = [
        Stage::Join,
        Stage::Norm("0", NormSpec::layer(1e-5, true)),
        Stage::Product("1", spec.output, true),
        Stage::Activation(TowerActivation::Common(Activation::Gelu)),
        Stage::Product("3", spec.output, true),
    ];
    TowerSpec {
        roots: CHAT_ROOTS,
        names: TowerNames {
            patches: "embeddings.patch_embedding",
            layers: "encoder.layers",
            norms: ["norm1", "norm2"],
            qkv: Qkv::Joined("attn.qkv"),
            output: "attn.proj",
        },
        class_token: Some(Stored::batched("embeddings.class_embedding")),
        positions: spec.positions.map(|own| Positions {
            stored: Stored::batched("embeddings.position_embedding"),
            ..own
        }),
        attention_biases: if biased { Biases::All } else { Biases::Output },
        scales: Some(["ls1", "ls2"]),
        last_norm: None,
        connector: stages.to_vec(),
        ..spec
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
