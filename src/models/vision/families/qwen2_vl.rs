//! Qwen2-VL: layer norms, a feed-forward part without a gate, every patch sees the whole picture.
//! What its successors share with it is here too.

use serde_json::Value;

use crate::kernels::pointwise::Activation;
use crate::layers::norm::NormSpec;
use crate::models::error::Result;
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Biases, PatchForm, Qkv, Roots, RopeLayout, Stage, TowerActivation, TowerMlp, TowerNames,
    TowerRope, TowerSpec,
};

/// Prefixes of the names of Qwen's towers beside a language model, new and old.
const ROOTS: &[Roots] = &[
    Roots { tower: "model.visual.", connector: "model.visual.merger." },
    Roots { tower: "visual.", connector: "visual.merger." },
];

/// The tower of a `vision_config`, in which `hidden_size` is that of the decoder.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(&config["vision_config"]);
    let hidden = fields.size("embed_dim", 1280)?;
    let mlp = TowerMlp {
        intermediate: hidden * fields.size("mlp_ratio", 4)?,
        activation: fields.activation("quick_gelu")?,
        gate: None,
        names: ["mlp.fc1", "mlp.fc2"],
        bias: true,
    };
    let output = fields.size("hidden_size", 3584)?;
    with(fields, [hidden, output], NormSpec::layer(1e-6, true), mlp)?.checked()
}

/// A tower whose patches have `hidden` elements and whose tokens have `output`.
pub(super) fn with(
    fields: VisionFields<'_>,
    [hidden, output]: [usize; 2],
    norm: NormSpec,
    mlp: TowerMlp,
) -> Result<TowerSpec> {
    let merge = fields.size("spatial_merge_size", 2)?;
    Ok(TowerSpec {
        roots: ROOTS,
        names: TowerNames {
            patches: "patch_embed.proj",
            layers: "blocks",
            norms: ["norm1", "norm2"],
            qkv: Qkv::Joined("attn.qkv"),
            output: "attn.proj",
        },
        patch: fields.size("patch_size", 14)?,
        merge,
        patches: PatchForm::Frames(fields.size("temporal_patch_size", 2)?),
        patch_bias: false,
        patch_norms: [None; 2],
        class_token: None,
        positions: None,
        rope: Some(TowerRope { theta: fields.rope_theta_or(10_000.0)?, layout: RopeLayout::Joint }),
        hidden,
        heads: fields.size("num_heads", 16)?,
        layers: fields.size("depth", 32)?,
        first_norm: None,
        norm,
        attention_biases: Biases::All,
        normed_heads: None,
        after_norms: None,
        bounded: false,
        mlp,
        scales: None,
        windows: None,
        merger: None,
        last_norm: None,
        connector: merger(norm, hidden * merge * merge, output, ["ln_q", "mlp.0", "mlp.2"], false),
        deepstack: Vec::new(),
        deepstack_list: "deepstack_merger_list",
        deepstack_connector: Vec::new(),
        gathered: Vec::new(),
        separator: &[],
        marks: None,
        output,
    })
}

/// What makes one token of several patches, which have `width` elements together: a norm of each
/// patch, or of all if they are `joined_first`, and two products.
pub(super) fn merger(
    norm: NormSpec,
    width: usize,
    output: usize,
    [norm_name, first, second]: [&'static str; 3],
    joined_first: bool,
) -> Vec<Stage> {
    let norm = Stage::Norm(norm_name, norm);
    let [before, behind] = if joined_first { [Stage::Join, norm] } else { [norm, Stage::Join] };
    vec![
        before,
        behind,
        Stage::Product(first, width, true),
        Stage::Activation(TowerActivation::Common(Activation::Gelu)),
        Stage::Product(second, output, true),
    ]
}
