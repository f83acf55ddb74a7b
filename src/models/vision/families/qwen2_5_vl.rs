//! Qwen2.5-VL: RMS norms, a gated feed-forward part; most layers attend within windows.

use serde_json::Value;

use crate::layers::norm::NormSpec;
use crate::models::error::Result;
use crate::models::vision::spec::{
    MergerSpec, QWEN_ROOTS, TowerMlp, TowerSpec, VisionFields, Windows,
};

/// The tower of a `vision_config`.
pub(super) fn spec(vision: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(vision);
    let (patch, merge) = (fields.size("patch_size", 14)?, fields.size("spatial_merge_size", 2)?);
    TowerSpec {
        roots: QWEN_ROOTS,
        patch,
        merge,
        frames: fields.size("temporal_patch_size", 2)?,
        patch_bias: false,
        positions: None,
        rope_theta: fields.rope_theta()?,
        hidden: fields.size("hidden_size", 3584)?,
        heads: fields.size("num_heads", 16)?,
        layers: fields.size("depth", 32)?,
        norm: NormSpec::rms(1e-6),
        mlp: TowerMlp {
            intermediate: fields.size("intermediate_size", 3420)?,
            activation: fields.activation("silu")?,
            gate: Some("gate_proj"),
            names: ["up_proj", "down_proj"],
        },
        windows: Some(Windows {
            side: fields.size("window_size", 112)? / merge / patch,
            whole: fields.layers("fullatt_block_indexes", &[7, 15, 23, 31])?,
        }),
        merger: MergerSpec { norm: "ln_q", products: ["mlp.0", "mlp.2"] },
        deepstack: Vec::new(),
        output: fields.size("out_hidden_size", 3584)?,
    }
    .checked()
}
