//! Qwen2-VL: layer norms, a feed-forward part without a gate, every patch sees the whole picture.

use serde_json::Value;

use crate::layers::norm::NormSpec;
use crate::models::error::Result;
use crate::models::vision::spec::{MergerSpec, QWEN_ROOTS, TowerMlp, TowerSpec, VisionFields};

/// The tower of a `vision_config`, in which `hidden_size` is that of the decoder.
pub(super) fn spec(vision: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(vision);
    let hidden = fields.size("embed_dim", 1280)?;
    TowerSpec {
        roots: QWEN_ROOTS,
        patch: fields.size("patch_size", 14)?,
        merge: fields.size("spatial_merge_size", 2)?,
        frames: fields.size("temporal_patch_size", 2)?,
        patch_bias: false,
        positions: None,
        rope_theta: fields.rope_theta()?,
        hidden,
        heads: fields.size("num_heads", 16)?,
        layers: fields.size("depth", 32)?,
        norm: NormSpec::layer(1e-6, true),
        mlp: TowerMlp {
            intermediate: hidden * fields.size("mlp_ratio", 4)?,
            activation: fields.activation("quick_gelu")?,
            gate: None,
            names: ["fc1", "fc2"],
        },
        windows: None,
        merger: MergerSpec { norm: "ln_q", products: ["mlp.0", "mlp.2"] },
        deepstack: Vec::new(),
        output: fields.size("hidden_size", 3584)?,
    }
    .checked()
}
