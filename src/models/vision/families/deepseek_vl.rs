//! DeepSeek-VL (1.3B) and Janus: SigLIP's tower and products.

use serde_json::Value;

use super::siglip;
use crate::kernels::pointwise::Activation;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Biases, Positions, Roots, Stage, TowerActivation, TowerMlp, TowerNames, TowerSpec,
};

const ROOTS: &[Roots] = &[
    Roots { tower: "model.vision_model.", connector: "model.aligner." },
    Roots { tower: "model.vision_model.vision_model.", connector: "model.aligner." },
];

/// The tower of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let output = VisionFields(&config["text_config"]).size("hidden_size", 4096)?;
    TowerSpec {
        roots: ROOTS,
        connector: vec![
            Stage::Product("linear1", output, true),
            Stage::Activation(TowerActivation::Common(Activation::Gelu)),
            Stage::Product("linear2", output, true),
        ],
        output,
        ..siglip::tower(VisionFields(&config["vision_config"]))?
    }
    .checked()
}

/// The products of Janus's aligner behind the first one.
const HIDDEN: [&str; 4] =
    ["hidden_layers.0", "hidden_layers.1", "hidden_layers.2", "hidden_layers.3"];

/// The tower of a `config.json` of Janus.
pub(super) fn janus(config: &Value) -> Result<TowerSpec> {
    let vision = &config["vision_config"];
    let fields = VisionFields(vision);
    if vision["use_qk_norm"].as_bool() == Some(true) {
        return Err(bad("use_qk_norm", true, "supported is false"));
    }
    let bias = vision["attention_bias"].as_bool().unwrap_or(true);
    let ratio = vision["mlp_ratio"].as_f64().unwrap_or(4.0);
    let (patch, hidden) = (fields.square("patch_size", 16)?, fields.size("hidden_size", 1024)?);
    let depth = fields.size("depth", 2)?;
    if depth > HIDDEN.len() + 1 {
        return Err(bad("depth", depth, "must be at most 5"));
    }
    let output = fields.size("projection_dim", 2048)?;
    let activation = fields.activation("gelu")?;
    let behind = HIDDEN.iter().take(depth - 1).flat_map(|name: &&'static str| {
        [Stage::Activation(activation), Stage::Product(name, output, true)]
    });
    let spec = siglip::tower(fields)?;
    let side = fields.square("image_size", 384)? / patch;
    TowerSpec {
        roots: ROOTS,
        names: TowerNames { output: "self_attn.projection_layer", ..spec.names },
        positions: spec.positions.map(|positions| Positions { side, ..positions }),
        hidden,
        heads: fields.size("num_attention_heads", 16)?,
        layers: fields.size("num_hidden_layers", 24)?,
        attention_biases: if bias { Biases::All } else { Biases::Output },
        mlp: TowerMlp { intermediate: widened(hidden, ratio)?, activation, ..spec.mlp },
        connector: [Stage::Product("fc1", output, true)].into_iter().chain(behind).collect(),
        output,
        ..spec
    }
    .checked()
}

/// Elements between two products, so many times those of a hidden state.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be far below 2^52"
)]
fn widened(hidden: usize, ratio: f64) -> Result<usize> {
    let inner = hidden as f64 * ratio;
    if (1.0..1e6).contains(&inner) {
        return Ok(inner as usize);
    }
    Err(bad("mlp_ratio", ratio, "must make a size of 1 to 1000000"))
}
