//! GLM-4.1V, 4.5V and 4.6V: RMS norms, one behind the product of patches too; interpolated positions beside
//! the rotary embedding; a convolution over the patches of a token, and a gated feed-forward part. GLM-OCR has
//! biases and norms of heads instead of learned positions.

use serde_json::Value;

use super::qwen2_vl;
use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Biases, Fit, HeadSpec, Positions, Roots, Stage, Stored, TowerActivation, TowerMlp, TowerSpec,
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
        connector: connector(output, inner, activation),
        ..spec
    }
    .checked()
}

/// The tower of a `config.json` of GLM-OCR.
#[expect(clippy::cast_precision_loss, reason = "heads are far below 2^24")]
pub(super) fn ocr(config: &Value) -> Result<TowerSpec> {
    let vision = &config["vision_config"];
    let fields = VisionFields(vision);
    let bias = vision["attention_bias"].as_bool().unwrap_or(true);
    let (hidden, output) =
        (fields.size("hidden_size", 1024)?, fields.size("out_hidden_size", 1536)?);
    let (heads, channels) = (fields.size("num_heads", 16)?, fields.size("in_channels", 3)?);
    let eps = fields.eps("rms_norm_eps", 1e-5)?;
    let mlp = TowerMlp {
        intermediate: fields.size("intermediate_size", 4096)?,
        activation: fields.activation("silu")?,
        gate: Some("mlp.gate_proj"),
        names: ["mlp.up_proj", "mlp.down_proj"],
        bias,
    };
    let norm = NormSpec::rms(eps);
    let spec = qwen2_vl::with(fields, [hidden, output], norm, mlp)?;
    TowerSpec {
        roots: ROOTS,
        patch: fields.square("patch_size", 14)?,
        patch_bias: true,
        heads,
        layers: fields.size("depth", 24)?,
        attention_biases: if bias { Biases::All } else { Biases::None },
        normed_heads: Some(HeadSpec {
            norms: ["attn.q_norm", "attn.k_norm"],
            eps,
            scale: ((hidden / heads) as f32).sqrt().recip(),
            values: false,
        }),
        last_norm: Some(("post_layernorm", norm)),
        connector: connector(output, output * channels, mlp.activation),
        ..spec
    }
    .checked()
}

/// A convolution over the patches of a token, and a gated feed-forward part with so many elements.
fn connector(output: usize, inner: usize, activation: TowerActivation) -> Vec<Stage> {
    let gated = ["merger.gate_proj", "merger.up_proj", "merger.down_proj"];
    vec![
        Stage::Convolution("downsample", output),
        Stage::Product("merger.proj", output, false),
        Stage::Norm("merger.post_projection_norm", NormSpec::layer(LAYER_NORM_EPS, true)),
        Stage::Activation(TowerActivation::Common(Activation::Gelu)),
        Stage::Gated(gated, [inner, output], activation),
    ]
}
