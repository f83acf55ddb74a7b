//! GLM-4.1V, 4.5V and 4.6V: RMS norms, one behind the product of patches too; interpolated positions beside
//! the rotary embedding; a convolution over the patches of a token, and a gated feed-forward part.

use serde_json::Value;

use super::qwen2_vl;
use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::spec::{
    Biases, Fit, Positions, Roots, Stage, Stored, TowerActivation, TowerMlp, TowerSpec,
    VisionFields,
};

const ROOTS: &[Roots] = &[
    Roots { tower: "model.visual.", connector: "model.visual." },
    Roots { tower: "visual.", connector: "visual." },
];
/// Epsilon of the connector's norm, by PyTorch's default.
const LAYER_NORM_EPS: f32 = 1e-5;

/// The tower of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let vision = &config["vision_config"];
    let fields = VisionFields(vision);
    if vision["attention_bias"].as_bool() == Some(true) {
        return Err(bad("attention_bias", true, "supported is false"));
    }
    let hidden = fields.size("hidden_size", 1536)?;
    let output = fields.size("out_hidden_size", 4096)?;
    let activation = fields.activation("silu")?;
    let norm = NormSpec::rms(fields.eps("rms_norm_eps", 1e-5)?);
    // Its own feed-forward parts are as wide as a token; the connector's have the field's size.
    let mlp = TowerMlp {
        intermediate: output,
        activation,
        gate: Some("mlp.gate_proj"),
        names: ["mlp.up_proj", "mlp.down_proj"],
        bias: false,
    };
    let spec = qwen2_vl::with(fields, [hidden, output], norm, mlp)?;
    let patch = fields.square("patch_size", 14)?;
    let inner = fields.size("intermediate_size", 13_696)?;
    let gated = ["merger.gate_proj", "merger.up_proj", "merger.down_proj"];
    TowerSpec {
        roots: ROOTS,
        patch,
        patch_bias: true,
        patch_norms: [None, Some(("post_conv_layernorm", norm))],
        positions: Some(Positions {
            stored: Stored::plain("embeddings.position_embedding.weight"),
            side: fields.square("image_size", 336)? / patch,
            fit: Fit::Sampled,
        }),
        heads: fields.size("num_heads", 12)?,
        layers: fields.size("depth", 24)?,
        attention_biases: Biases::None,
        last_norm: Some(("post_layernorm", norm)),
        connector: vec![
            Stage::Convolution("downsample", output),
            Stage::Product("merger.proj", output, false),
            Stage::Norm("merger.post_projection_norm", NormSpec::layer(LAYER_NORM_EPS, true)),
            Stage::Activation(TowerActivation::Common(Activation::Gelu)),
            Stage::Gated(gated, inner, activation),
        ],
        ..spec
    }
    .checked()
}
