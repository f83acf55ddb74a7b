//! Gemma 4: norms before and behind both parts of a layer and of heads, products within bounds, a rotary
//! embedding and learned positions of both axes; the mean of the patches of a token, and a product.

use serde_json::Value;

use super::siglip;
use crate::layers::norm::{NormScale, NormSpec};
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Biases, Fit, HeadSpec, PatchForm, Positions, Qkv, Roots, RopeLayout, Stage, Stored, TowerMlp,
    TowerNames, TowerRope, TowerSpec,
};

const ROOTS: &[Roots] = &[Roots { tower: "model.vision_tower.", connector: "model.embed_vision." }];

const UNIFIED_ROOTS: &[Roots] = &[
    Roots { tower: "model.vision_embedder.", connector: "model.embed_vision." },
    Roots { tower: "model.embed_vision.", connector: "model.embed_vision.multimodal_embedder." },
];
/// Epsilon of layer norms, by PyTorch's default.
const LAYER_NORM_EPS: f32 = 1e-5;

/// What is in place of a tower in a `config.json` of Gemma 4 Unified: one product for all patches of a
/// token, between norms.
pub(super) fn unified(config: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(&config["vision_config"]);
    let (hidden, side) = (fields.size("mm_embed_dim", 3840)?, fields.size("mm_posemb_size", 1120)?);
    let out = fields.size("output_proj_dims", hidden)?;
    if out != hidden {
        return Err(bad("output_proj_dims", out, format!("must be `mm_embed_dim` = {hidden}")));
    }
    let merge = fields.size("pooling_kernel_size", 3)?;
    let plain =
        NormSpec { scale: NormScale::One, ..NormSpec::rms(fields.eps("rms_norm_eps", 1e-6)?) };
    let output = VisionFields(&config["text_config"]).size("hidden_size", 3840)?;
    let spec = siglip::tower(VisionFields(&Value::Null))?;
    TowerSpec {
        roots: UNIFIED_ROOTS,
        names: TowerNames { patches: "patch_dense", ..spec.names },
        patch: fields.size("patch_size", 16)? * merge,
        patches: PatchForm::Pixels,
        patch_norms: ["patch_ln1", "patch_ln2"]
            .map(|name| Some((name, NormSpec::layer(LAYER_NORM_EPS, true)))),
        positions: Some(Positions {
            stored: Stored::plain("pos_embedding"),
            side,
            fit: Fit::PairedAxes,
        }),
        hidden,
        heads: 1,
        layers: 0,
        first_norm: Some(("pos_norm", NormSpec::layer(LAYER_NORM_EPS, true))),
        last_norm: None,
        connector: vec![
            Stage::Norm("embedding_pre_projection_norm", plain),
            Stage::Product("embedding_projection", output, false),
        ],
        output,
        ..spec
    }
    .checked()
}

/// The tower of a `config.json` of Gemma 4.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(&config["vision_config"]);
    let (hidden, heads) =
        (fields.size("hidden_size", 768)?, fields.size("num_attention_heads", 12)?);
    for (field, default, supported) in
        [("num_key_value_heads", 12, heads), ("head_dim", 64, hidden / heads)]
    {
        let given = fields.size(field, default)?;
        if given != supported {
            return Err(bad(field, given, format!("supported is {supported}")));
        }
    }
    if fields.0["attention_bias"].as_bool() == Some(true) {
        return Err(bad("attention_bias", true, "supported is false"));
    }
    let eps = fields.eps("rms_norm_eps", 1e-6)?;
    let output = VisionFields(&config["text_config"]).size("hidden_size", 2304)?;
    #[expect(clippy::cast_precision_loss, reason = "hidden sizes are below 2^24")]
    let mut connector = vec![Stage::Mean, Stage::Scale((hidden as f32).sqrt())];
    if fields.0["standardize"].as_bool() == Some(true) {
        connector.push(Stage::Standardize(["std_bias", "std_scale"]));
    }
    let plain = NormSpec { scale: NormScale::One, ..NormSpec::rms(eps) };
    connector.push(Stage::Norm("embedding_pre_projection_norm", plain));
    connector.push(Stage::Product("embedding_projection", output, false));
    TowerSpec {
        roots: ROOTS,
        names: TowerNames {
            patches: "patch_embedder.input_proj",
            layers: "encoder.layers",
            norms: ["input_layernorm", "pre_feedforward_layernorm"],
            qkv: Qkv::Apart(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
            output: "self_attn.o_proj",
        },
        patch: fields.size("patch_size", 16)?,
        merge: fields.size("pooling_kernel_size", 3)?,
        patches: PatchForm::Pixels,
        patch_bias: false,
        patch_norms: [None; 2],
        class_token: None,
        positions: Some(Positions {
            stored: Stored::plain("patch_embedder.position_embedding_table"),
            side: fields.size("position_embedding_size", 10_240)?,
            fit: Fit::Axes,
        }),
        rope: Some(TowerRope { theta: fields.rope_theta_or(100.0)?, layout: RopeLayout::Apart }),
        hidden,
        heads,
        layers: fields.size("num_hidden_layers", 16)?,
        first_norm: None,
        norm: NormSpec::rms(eps),
        attention_biases: Biases::None,
        normed_heads: Some(HeadSpec {
            norms: ["self_attn.q_norm", "self_attn.k_norm"],
            eps,
            scale: 1.0,
            values: true,
        }),
        after_norms: Some(["post_attention_layernorm", "post_feedforward_layernorm"]),
        bounded: true,
        mlp: feed_forward(fields)?,
        scales: None,
        windows: None,
        merger: None,
        last_norm: None,
        connector,
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

/// The feed-forward part of a layer.
fn feed_forward(fields: VisionFields<'_>) -> Result<TowerMlp> {
    Ok(TowerMlp {
        intermediate: fields.size("intermediate_size", 3072)?,
        activation: fields.activation_of("hidden_activation", "gelu_pytorch_tanh")?,
        gate: Some("mlp.gate_proj"),
        names: ["mlp.up_proj", "mlp.down_proj"],
        bias: false,
    })
}
