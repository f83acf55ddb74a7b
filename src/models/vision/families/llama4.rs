//! Llama 4: a class token behind the patches, positions learned and rotated; two products for the patches
//! of a token, and one to the decoder's width.

use serde_json::Value;

use super::siglip;
use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Fit, PatchForm, Positions, Roots, RopeLayout, Stage, Stored, TowerActivation, TowerMlp,
    TowerNames, TowerRope, TowerSpec,
};

const ROOTS: &[Roots] = &[
    Roots { tower: "vision_model.", connector: "" },
    Roots { tower: "model.vision_model.", connector: "model." },
];
/// Epsilon of the norms, by PyTorch's default: the field is not read by the reference.
const EPS: f32 = 1e-5;

/// The tower of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let vision = &config["vision_config"];
    let fields = VisionFields(vision);
    let ratio = vision["pixel_shuffle_ratio"].as_f64().unwrap_or(0.5);
    if (ratio - 0.5).abs() > 1e-9 {
        return Err(bad("pixel_shuffle_ratio", ratio, "supported is 0.5"));
    }
    let (patch, norm) = (fields.square("patch_size", 14)?, NormSpec::layer(EPS, true));
    let hidden = fields.size("hidden_size", 768)?;
    let inner = fields.size("projector_input_dim", 4096)?;
    let wide = fields.size("projector_output_dim", 4096)?;
    let joined = fields.size("intermediate_size", 5632)?;
    if joined != 4 * hidden {
        return Err(bad("intermediate_size", joined, format!("must be 4 times {hidden}")));
    }
    let output = VisionFields(&config["text_config"]).size("hidden_size", 5120)?;
    let gelu = TowerActivation::Common(Activation::Gelu);
    let spec = siglip::tower(fields)?;
    TowerSpec {
        roots: ROOTS,
        names: TowerNames {
            patches: "patch_embedding.linear",
            layers: "model.layers",
            norms: ["input_layernorm", "post_attention_layernorm"],
            output: "self_attn.o_proj",
            ..spec.names
        },
        patch,
        merge: 2,
        patches: PatchForm::Channels,
        patch_bias: false,
        class_token: Some(Stored::plain("class_embedding")),
        positions: Some(Positions {
            stored: Stored::plain("positional_embedding_vlm"),
            side: fields.square("image_size", 448)? / patch,
            fit: Fit::WholeBeforeClass,
        }),
        rope: Some(TowerRope {
            theta: fields.rope_theta_or(10_000.0)?,
            layout: RopeLayout::Neighbours,
        }),
        heads: fields.size("num_attention_heads", 16)?,
        layers: fields.size("num_hidden_layers", 34)?,
        first_norm: Some(("layernorm_pre", norm)),
        norm,
        mlp: TowerMlp { intermediate: joined, activation: gelu, ..spec.mlp },
        last_norm: Some(("layernorm_post", norm)),
        connector: vec![
            Stage::Join,
            Stage::Product("vision_model.vision_adapter.mlp.fc1", inner, false),
            Stage::Activation(gelu),
            Stage::Product("vision_model.vision_adapter.mlp.fc2", wide, false),
            Stage::Activation(gelu),
            Stage::Product("multi_modal_projector.linear_1", output, false),
        ],
        output,
        ..spec
    }
    .checked()
}
