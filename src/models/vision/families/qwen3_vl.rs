//! Qwen3-VL: an interpolated embedding of positions beside the rotary one, and features for several
//! layers of the decoder. Qwen3.5 has the same tower without these.

use serde_json::Value;

use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::spec::{MergerSpec, QWEN_ROOTS, TowerMlp, TowerSpec, VisionFields};

/// The tower of a `vision_config`.
pub(super) fn spec(vision: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(vision);
    let deepstack = fields.layers("deepstack_visual_indexes", &[8, 16, 24])?;
    TowerSpec { deepstack, ..without_deepstack(vision)? }.checked()
}

/// The tower of a `vision_config` whose features are for the decoder's embeddings alone.
pub(super) fn without_deepstack(vision: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(vision);
    let positions = fields.size("num_position_embeddings", 2304)?;
    let side = positions.isqrt();
    if side * side != positions {
        return Err(bad("num_position_embeddings", positions, "must be a square number"));
    }
    TowerSpec {
        roots: QWEN_ROOTS,
        patch: fields.size("patch_size", 16)?,
        merge: fields.size("spatial_merge_size", 2)?,
        frames: fields.size("temporal_patch_size", 2)?,
        patch_bias: true,
        positions: Some(side),
        rope_theta: fields.rope_theta()?,
        hidden: fields.size("hidden_size", 1152)?,
        heads: fields.size("num_heads", 16)?,
        layers: fields.size("depth", 27)?,
        norm: NormSpec::layer(1e-6, true),
        mlp: TowerMlp {
            intermediate: fields.size("intermediate_size", 4304)?,
            activation: fields.activation("gelu_pytorch_tanh")?,
            gate: None,
            names: ["linear_fc1", "linear_fc2"],
        },
        windows: None,
        merger: MergerSpec { norm: "norm", products: ["linear_fc1", "linear_fc2"] },
        deepstack: Vec::new(),
        output: fields.size("out_hidden_size", 3584)?,
    }
    .checked()
}
