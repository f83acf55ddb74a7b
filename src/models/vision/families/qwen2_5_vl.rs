//! Qwen2.5-VL: RMS norms, a gated feed-forward part; most layers attend within windows.

use serde_json::Value;

use super::qwen2_vl;
use crate::layers::norm::NormSpec;
use crate::models::error::Result;
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{Qkv, Roots, TowerMlp, TowerNames, TowerSpec, Windows};

/// Prefixes of the names of the towers of models that speak.
pub(super) const OMNI_ROOTS: &[Roots] =
    &[Roots { tower: "thinker.visual.", connector: "thinker.visual.merger." }];

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

/// The tower of Qwen2.5-Omni, which has queries, keys and values apart.
pub(super) fn omni(config: &Value) -> Result<TowerSpec> {
    let spec = spec(config)?;
    let names = TowerNames { qkv: Qkv::Apart(["attn.q", "attn.k", "attn.v"]), ..spec.names };
    Ok(TowerSpec { roots: OMNI_ROOTS, names, ..spec })
}
