//! SigLIP's tower, which many families have: learned positions, layer norms, a norm at the end.

use crate::layers::norm::NormSpec;
use crate::models::error::Result;
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{
    Biases, Fit, PatchForm, Positions, Qkv, Roots, Stored, TowerMlp, TowerNames, TowerSpec,
};

/// Names of the modules of a layer, and of what is around them.
pub(super) const NAMES: TowerNames = TowerNames {
    patches: "embeddings.patch_embedding",
    layers: "encoder.layers",
    norms: ["layer_norm1", "layer_norm2"],
    qkv: Qkv::Apart(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
    output: "self_attn.out_proj",
};

/// Prefixes of a tower and a projector beside a language model, new and old.
pub(super) const ROOTS: &[Roots] = &[
    Roots { tower: "model.vision_tower.", connector: "model.multi_modal_projector." },
    Roots { tower: "model.vision_tower.vision_model.", connector: "model.multi_modal_projector." },
    Roots { tower: "vision_tower.vision_model.", connector: "multi_modal_projector." },
    Roots { tower: "vision_tower.", connector: "multi_modal_projector." },
];

/// The tower of a `vision_config`, without a connector.
pub(super) fn tower(fields: VisionFields<'_>) -> Result<TowerSpec> {
    let (patch, hidden) = (fields.square("patch_size", 16)?, fields.size("hidden_size", 768)?);
    let norm = NormSpec::layer(fields.eps("layer_norm_eps", 1e-6)?, true);
    Ok(TowerSpec {
        roots: ROOTS,
        names: NAMES,
        patch,
        merge: 1,
        patches: PatchForm::Picture,
        patch_bias: true,
        patch_norms: [None; 2],
        class_token: None,
        positions: Some(Positions {
            stored: Stored::plain("embeddings.position_embedding.weight"),
            side: fields.square("image_size", 224)? / patch,
            fit: Fit::Whole,
        }),
        rope: None,
        hidden,
        heads: fields.size("num_attention_heads", 12)?,
        layers: fields.size("num_hidden_layers", 12)?,
        first_norm: None,
        norm,
        attention_biases: Biases::All,
        normed_heads: None,
        after_norms: None,
        bounded: false,
        mlp: TowerMlp {
            intermediate: fields.size("intermediate_size", 3072)?,
            activation: fields.activation("gelu_pytorch_tanh")?,
            gate: None,
            names: ["mlp.fc1", "mlp.fc2"],
            bias: true,
        },
        scales: None,
        windows: None,
        merger: None,
        last_norm: Some(("post_layernorm", norm)),
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
