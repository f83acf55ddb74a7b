//! Kimi-VL and Kimi K2.5: a tower for pictures of any size (MoonViT) with interpolated positions beside a rotary
//! embedding, whose pairs of columns and rows take turns; a norm and two products for the patches of a token.

use serde_json::{Map, Value, json};

use super::siglip;
use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Fit, Positions, Qkv, Roots, RopeLayout, Stage, Stored, StoredForm, TowerActivation, TowerMlp,
    TowerNames, TowerRope, TowerSpec,
};

const ROOTS: &[Roots] = &[Roots { tower: "vision_tower.", connector: "multi_modal_projector." }];
/// The same of Kimi K2.5.
const K25_ROOTS: &[Roots] = &[Roots { tower: "vision_tower.", connector: "mm_projector." }];
/// Epsilon of all norms, by PyTorch's default.
const EPS: f32 = 1e-5;
/// Patches of a side of a token.
const MERGE: usize = 2;

/// The tower of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let vision = &config["vision_config"];
    let fields = VisionFields(vision);
    let merge = &vision["merge_kernel_size"];
    if !merge.is_null() && *merge != json!([MERGE, MERGE]) {
        return Err(bad("merge_kernel_size", merge, "supported is [2, 2]"));
    }
    let side = fields.size("init_pos_emb_height", 64)?;
    let width = fields.size("init_pos_emb_width", 64)?;
    if side != width {
        return Err(bad("init_pos_emb_width", width, format!("must be the height, {side}")));
    }
    let (hidden, norm) = (fields.size("hidden_size", 1152)?, NormSpec::layer(EPS, true));
    let output = VisionFields(&config["text_config"]).size("hidden_size", 2048)?;
    let spec = siglip::tower(fields)?;
    TowerSpec {
        roots: ROOTS,
        names: TowerNames {
            patches: "patch_embed.proj",
            layers: "encoder.blocks",
            norms: ["norm0", "norm1"],
            qkv: Qkv::Joined("wqkv"),
            output: "wo",
        },
        patch: fields.square("patch_size", 14)?,
        merge: MERGE,
        positions: Some(Positions {
            stored: Stored { name: "patch_embed.pos_emb.weight", form: StoredForm::Square },
            side,
            fit: Fit::Sampled,
        }),
        rope: Some(TowerRope { theta: 10_000.0, layout: RopeLayout::Alternating }),
        hidden,
        heads: fields.size("num_attention_heads", 16)?,
        layers: fields.size("num_hidden_layers", 27)?,
        norm,
        mlp: TowerMlp {
            intermediate: fields.size("intermediate_size", 4304)?,
            names: ["mlp.fc0", "mlp.fc1"],
            ..spec.mlp
        },
        last_norm: Some(("encoder.final_layernorm", norm)),
        connector: vec![
            Stage::Norm("pre_norm", norm),
            Stage::Join,
            Stage::Product("linear_1", hidden * MERGE * MERGE, true),
            Stage::Activation(TowerActivation::Common(Activation::Gelu)),
            Stage::Product("linear_2", output, true),
        ],
        output,
        ..spec
    }
    .checked()
}

/// The tower of a `config.json` of Kimi K2.5, whose fields have other names, of which files have new or old ones.
pub(super) fn k25(config: &Value) -> Result<TowerSpec> {
    const NAMES: [[&str; 3]; 6] = [
        ["hidden_size", "hidden_size", "vt_hidden_size"],
        ["intermediate_size", "intermediate_size", "vt_intermediate_size"],
        ["num_attention_heads", "num_attention_heads", "vt_num_attention_heads"],
        ["num_hidden_layers", "num_hidden_layers", "vt_num_hidden_layers"],
        ["init_pos_emb_height", "pos_emb_height", "init_pos_emb_height"],
        ["init_pos_emb_width", "pos_emb_width", "init_pos_emb_width"],
    ];
    let vision = &config["vision_config"];
    let mut own: Map<String, Value> = Map::new();
    for [name, new, old] in NAMES {
        let given = [new, old].into_iter().find_map(|name| vision.get(name));
        own.extend(given.map(|value| (name.to_owned(), value.clone())));
    }
    for name in ["patch_size", "merge_kernel_size", "hidden_act"] {
        own.extend(vision.get(name).map(|value| (name.to_owned(), value.clone())));
    }
    for (name, supported) in [("merge_type", "sd2_tpool"), ("mm_projector_type", "patchmerger")] {
        let given = vision[name].as_str().unwrap_or(supported);
        if given != supported {
            return Err(bad(name, given, format!("supported is {supported}")));
        }
    }
    let text =
        json!({"hidden_size": VisionFields(&config["text_config"]).size("hidden_size", 7168)?});
    let spec = spec(&json!({"vision_config": own, "text_config": text}))?;
    let old = VisionFields(vision).eps("projector_ln_eps", 1e-5)?;
    let eps = VisionFields(config).eps("projection_layer_norm_eps", f64::from(old))?;
    let norm = NormSpec::layer(eps, true);
    let (hidden, output) = (spec.hidden, spec.output);
    TowerSpec {
        roots: K25_ROOTS,
        connector: vec![
            Stage::Norm("pre_norm", norm),
            Stage::Join,
            Stage::Product("proj.0", hidden * MERGE * MERGE, true),
            Stage::Activation(TowerActivation::Common(Activation::Gelu)),
            Stage::Product("proj.2", output, true),
        ],
        ..spec
    }
    .checked()
}
