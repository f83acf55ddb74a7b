//! Ovis 2: a tower with RMS norms and a gated feed-forward part (AIMv2). The patches of a token become the
//! probabilities of words of a vocabulary of its own, whose embeddings are added up by them; the last words of
//! that are for tokens around pictures.

use serde_json::Value;

use super::siglip;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Biases, Marks, Positions, Qkv, Roots, Stage, TowerMlp, TowerNames, TowerSpec,
};

const ROOTS: &[Roots] = &[Roots { tower: "model.vision_tower.transformer.", connector: "model." }];
const TABLE: &str = "visual_embeddings_table.weight";
/// Epsilon of the norm of logits, by PyTorch's default.
const EPS: f32 = 1e-5;

/// The tower of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let vision = &config["vision_config"];
    let fields = VisionFields(vision);
    let how = vision["tokenize_function"].as_str().unwrap_or("softmax");
    if how != "softmax" {
        return Err(bad("tokenize_function", how, "supported is softmax"));
    }
    let (words, marks) =
        (fields.size("vocab_size", 16_384)?, fields.size("num_visual_indicator_tokens", 5)?);
    if words <= marks {
        let bound = format!("must be more than the {marks} of `num_visual_indicator_tokens`");
        return Err(bad("vocab_size", words, bound));
    }
    let (patch, merge) = (fields.square("patch_size", 14)?, fields.size("hidden_stride", 1)?);
    let norm = NormSpec::rms(fields.eps("rms_norm_eps", 1e-5)?);
    let is_on = |name: &str| vision[name].as_bool().unwrap_or(false);
    let output = VisionFields(config).size("hidden_size", 1536)?;
    let spec = siglip::tower(fields)?;
    let side = fields.square("image_size", 224)? / patch;
    if !side.is_multiple_of(merge) {
        let bound = format!("must divide the {side} patches of a side");
        return Err(bad("hidden_stride", merge, bound));
    }
    TowerSpec {
        roots: ROOTS,
        names: TowerNames {
            norms: ["rms_norm1", "rms_norm2"],
            qkv: Qkv::Apart(["attention.q_proj", "attention.k_proj", "attention.v_proj"]),
            output: "attention.out_proj",
            ..siglip::NAMES
        },
        patch,
        merge,
        patch_norms: [None, Some(("embeddings.rms_norm", norm))],
        positions: spec.positions.map(|positions| Positions { side, ..positions }),
        hidden: fields.size("hidden_size", 1024)?,
        heads: fields.size("num_attention_heads", 8)?,
        layers: fields.size("num_hidden_layers", 24)?,
        norm,
        attention_biases: if is_on("qkv_bias") { Biases::All } else { Biases::None },
        mlp: TowerMlp {
            intermediate: fields.size("intermediate_size", 2816)?,
            activation: fields.activation("silu")?,
            gate: Some("ffn.gate_proj"),
            names: ["ffn.up_proj", "ffn.down_proj"],
            bias: is_on("mlp_bias"),
        },
        last_norm: Some(("rms_norm", norm)),
        connector: vec![
            Stage::Join,
            Stage::Product("vision_tower.head_linear", words - marks, false),
            Stage::Norm("vision_tower.head_norm", NormSpec::layer(EPS, true)),
            Stage::Probabilities,
            Stage::Rows(TABLE, marks, output),
        ],
        marks: Some(Marks { table: TABLE, rows: words, count: marks }),
        output,
        ..spec
    }
    .checked()
}
