//! Pixtral's tower, a decoder's layers that see both ways with a rotary embedding of rows and columns;
//! Mistral 3 puts a norm, a product over the patches of a token and a projector behind it.

use serde_json::Value;

use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::Result;
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Biases, PatchForm, Qkv, Roots, RopeLayout, Stage, TowerActivation, TowerMlp, TowerNames,
    TowerRope, TowerSpec,
};

/// Epsilon of the tower's norms.
const EPS: f32 = 1e-5;

/// The tower of a `vision_config`, without a connector.
pub(super) fn tower(fields: VisionFields<'_>) -> Result<TowerSpec> {
    let hidden = fields.size("hidden_size", 1024)?;
    let norm = NormSpec::rms(EPS);
    Ok(TowerSpec {
        roots: super::siglip::ROOTS,
        names: TowerNames {
            patches: "patch_conv",
            layers: "transformer.layers",
            norms: ["attention_norm", "ffn_norm"],
            qkv: Qkv::Apart(["attention.q_proj", "attention.k_proj", "attention.v_proj"]),
            output: "attention.o_proj",
        },
        patch: fields.square("patch_size", 16)?,
        merge: 1,
        patches: PatchForm::Picture,
        patch_bias: false,
        patch_norms: [None; 2],
        class_token: None,
        positions: None,
        rope: Some(TowerRope { theta: fields.rope_theta_or(10_000.0)?, layout: RopeLayout::Turns }),
        hidden,
        heads: fields.size("num_attention_heads", 16)?,
        layers: fields.size("num_hidden_layers", 24)?,
        first_norm: Some(("ln_pre", norm)),
        norm,
        attention_biases: Biases::None,
        normed_heads: None,
        after_norms: None,
        bounded: false,
        mlp: TowerMlp {
            intermediate: fields.size("intermediate_size", 4096)?,
            activation: fields.activation("gelu")?,
            gate: Some("feed_forward.gate_proj"),
            names: ["feed_forward.up_proj", "feed_forward.down_proj"],
            bias: false,
        },
        scales: None,
        windows: None,
        merger: None,
        last_norm: None,
        connector: Vec::new(),
        deepstack: Vec::new(),
        deepstack_list: "deepstack_merger_list",
        deepstack_connector: Vec::new(),
        gathered: Vec::new(),
        separator: &[],
        marks: None,
        output: hidden,
    })
}

/// The tower of a `config.json` of Mistral 3.
pub(super) fn mistral3(config: &Value) -> Result<TowerSpec> {
    let (fields, whole) = (VisionFields(&config["vision_config"]), VisionFields(config));
    let text = VisionFields(&config["text_config"]);
    let spec = tower(VisionFields(&config["vision_config"]))?;
    let (hidden, output) = (spec.hidden, text.size("hidden_size", 5120)?);
    let bias = config["multimodal_projector_bias"].as_bool().unwrap_or(false);
    TowerSpec {
        patch: fields.square("patch_size", 14)?,
        merge: whole.size("spatial_merge_size", 2)?,
        layers: whole.computed_layers("vision_feature_layer", -1, spec.layers)?,
        connector: vec![
            Stage::Norm("norm", NormSpec::rms(text.eps("rms_norm_eps", 1e-5)?)),
            Stage::Interleave,
            Stage::Product("patch_merger.merging_layer", hidden, false),
            Stage::Product("linear_1", output, bias),
            Stage::Activation(whole.activation_of("projector_hidden_act", "gelu")?),
            Stage::Product("linear_2", output, bias),
        ],
        output,
        ..spec
    }
    .checked()
}

/// Prefixes of LightOnOCR's tower and connector, new and old.
const LIGHTON_ROOTS: &[Roots] = &[
    Roots { tower: "model.vision_encoder.", connector: "model.vision_projection." },
    Roots { tower: "vision_encoder.", connector: "vision_projection." },
];

/// The tower of a `config.json` of LightOnOCR.
pub(super) fn lighton(config: &Value) -> Result<TowerSpec> {
    let (fields, whole) = (VisionFields(&config["vision_config"]), VisionFields(config));
    let text = VisionFields(&config["text_config"]);
    let spec = tower(fields)?;
    let (hidden, output) = (spec.hidden, text.size("hidden_size", 1024)?);
    TowerSpec {
        roots: LIGHTON_ROOTS,
        patch: fields.square("patch_size", 14)?,
        merge: whole.size("spatial_merge_size", 2)?,
        mlp: TowerMlp { activation: fields.activation("silu")?, ..spec.mlp },
        connector: vec![
            Stage::Norm("norm", NormSpec::rms(text.eps("rms_norm_eps", 1e-6)?)),
            Stage::Interleave,
            Stage::Product("patch_merger.merging_layer", hidden, false),
            Stage::Product("linear_1", output, false),
            Stage::Activation(TowerActivation::Common(Activation::Gelu)),
            Stage::Product("linear_2", output, false),
        ],
        output,
        ..spec
    }
    .checked()
}
