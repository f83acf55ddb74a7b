//! Qwen2.5-VL: RMS norms, a gated feed-forward part; most layers attend within windows.

use serde_json::Value;

use super::qwen2_vl;
use crate::layers::norm::NormSpec;
use crate::models::error::Result;
use crate::models::vision::spec::{TowerMlp, TowerSpec, VisionFields, Windows};

/// The tower of a `vision_config`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(&config["vision_config"]);
    let mlp = TowerMlp {
        intermediate: fields.size("intermediate_size", 3420)?,
        activation: fields.activation("silu")?,
        gate: Some("mlp.gate_proj"),
        names: ["mlp.up_proj", "mlp.down_proj"],
        bias: true,
    };
    let sizes = [fields.size("hidden_size", 3584)?, fields.size("out_hidden_size", 3584)?];
    let spec = qwen2_vl::with(fields, sizes, NormSpec::rms(1e-6), mlp)?;
    let windows = Windows {
        side: fields.size("window_size", 112)? / spec.merge / spec.patch,
        whole: fields.layers("fullatt_block_indexes", &[7, 15, 23, 31])?,
    };
    TowerSpec { windows: Some(windows), ..spec }.checked()
}
