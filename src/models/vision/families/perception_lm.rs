//! PerceptionLM: the Perception Encoder under timm's names, with a rotary embedding beside learned positions and
//! factors of what layers give; two products, and the mean of the patches of a token.

use serde_json::{Value, json};

use super::siglip;
use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Positions, Qkv, Roots, RopeLayout, Stage, Stored, TowerActivation, TowerMlp, TowerNames,
    TowerRope, TowerSpec,
};

const ROOTS: &[Roots] =
    &[Roots { tower: "model.vision_tower.timm_model.", connector: "model.multi_modal_projector." }];
/// Epsilon of all norms.
const EPS: f32 = 1e-5;

/// A tower of timm's.
struct Known {
    name: &'static str,
    /// Elements of a hidden state.
    hidden: usize,
    layers: usize,
    /// Elements between the products of the feed-forward part.
    inner: usize,
    class_token: bool,
    /// Whether layers have factors, and no norm is behind them.
    scaled: bool,
}

const KNOWN: [Known; 4] = [
    Known {
        name: "vit_pe_core_large_patch14_336",
        hidden: 1024,
        layers: 24,
        inner: 4096,
        class_token: true,
        scaled: false,
    },
    Known {
        name: "vit_pe_lang_large_patch14_448",
        hidden: 1024,
        layers: 23,
        inner: 4096,
        class_token: true,
        scaled: true,
    },
    Known {
        name: "vit_pe_core_gigantic_patch14_448",
        hidden: 1536,
        layers: 50,
        inner: 8960,
        class_token: false,
        scaled: false,
    },
    Known {
        name: "vit_pe_lang_gigantic_patch14_448",
        hidden: 1536,
        layers: 47,
        inner: 8960,
        class_token: false,
        scaled: true,
    },
];

/// The tower of a `config.json`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let (vision, whole) = (&config["vision_config"], VisionFields(config));
    let name = vision["architecture"].as_str().unwrap_or(KNOWN[0].name);
    let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
        let names = KNOWN.map(|known| known.name).join(", ");
        return Err(bad("architecture", name, format!("supported are {names}")));
    };
    let args = &vision["model_args"];
    let fields = VisionFields(args);
    let patch = fields.square("patch_size", 14)?;
    let side = fields.square("img_size", 448)? / patch;
    check(args, known, side)?;
    let with_class = config["vision_use_cls_token"].as_bool().unwrap_or(true);
    if with_class != known.class_token {
        let bound = format!("must be {} for {name}", known.class_token);
        return Err(bad("vision_use_cls_token", with_class, bound));
    }
    let merge = whole.size("projector_pooling_ratio", 1)?;
    if !side.is_multiple_of(merge) {
        let bound = format!("must divide the {side} patches of a side");
        return Err(bad("projector_pooling_ratio", merge, bound));
    }
    let output = VisionFields(&config["text_config"]).size("hidden_size", 4096)?;
    let hidden = fields.size("embed_dim", known.hidden)?;
    let scaled = args.get("init_values").map_or(known.scaled, |value| !value.is_null());
    let post_norm = args["use_post_transformer_norm"].as_bool().unwrap_or(!known.scaled);
    let norm = NormSpec::layer(EPS, true);
    let gelu = TowerActivation::Common(Activation::Gelu);
    let layout =
        if known.class_token { RopeLayout::Neighbours } else { RopeLayout::NeighboursFromZero };
    let spec = siglip::tower(VisionFields(&Value::Null))?;
    TowerSpec {
        roots: ROOTS,
        names: TowerNames {
            patches: "patch_embed.proj",
            layers: "blocks",
            norms: ["norm1", "norm2"],
            qkv: Qkv::Joined("attn.qkv"),
            output: "attn.proj",
        },
        patch,
        merge,
        patch_bias: false,
        class_token: known.class_token.then_some(Stored::batched("cls_token")),
        positions: spec.positions.map(|positions| Positions {
            stored: Stored::batched("pos_embed"),
            side,
            ..positions
        }),
        rope: Some(TowerRope { theta: 10_000.0, layout }),
        hidden,
        heads: fields.size("num_heads", 16)?,
        layers: fields.size("depth", known.layers)?,
        first_norm: Some(("norm_pre", norm)),
        norm,
        mlp: TowerMlp {
            // The ratio of both is that of the tower's own sizes.
            intermediate: hidden * known.inner / known.hidden,
            activation: gelu,
            ..spec.mlp
        },
        scales: scaled.then_some(["gamma_1", "gamma_2"]),
        last_norm: post_norm.then_some(("norm", norm)),
        connector: [
            Stage::Product("linear_1", output, true),
            Stage::Activation(gelu),
            Stage::Product("linear_2", output, true),
        ]
        .into_iter()
        .chain((merge > 1).then_some(Stage::Mean))
        .collect(),
        output,
        ..spec
    }
    .checked()
}

/// Refuses other arguments than those that are read, unless they say what is computed.
fn check(args: &Value, known: &Known, side: usize) -> Result<()> {
    const READ: [&str; 7] = [
        "patch_size",
        "img_size",
        "embed_dim",
        "num_heads",
        "depth",
        "init_values",
        "use_post_transformer_norm",
    ];
    for (name, value) in args.as_object().into_iter().flatten() {
        let supported = match name.as_str() {
            "global_pool" => json!(""),
            "ref_feat_shape" => json!([side, side]),
            "class_token" => json!(known.class_token),
            "use_fc_norm" => json!(false),
            "num_classes" => json!(0),
            name if READ.contains(&name) => continue,
            _ => return Err(bad("model_args", name, format!("read are {}", READ.join(", ")))),
        };
        if *value != supported {
            return Err(bad(
                "model_args",
                format!("{name} = {value}"),
                format!("supported is {supported}"),
            ));
        }
    }
    Ok(())
}
