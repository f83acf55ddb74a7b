//! Qwen3-VL: an interpolated embedding of positions beside the rotary one, and features for several
//! layers of the decoder. Qwen3.5 has the same tower without these.

use serde_json::Value;

use super::qwen2_5_vl::OMNI_ROOTS;
use super::qwen2_vl::{self, merger};
use crate::layers::norm::NormSpec;
use crate::models::error::{Result, bad};
use crate::models::vision::fields::VisionFields;
use crate::models::vision::spec::{Fit, Positions, Stored, TowerMlp, TowerSpec};

/// The tower of a `vision_config`.
pub(super) fn spec(config: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(&config["vision_config"]);
    let deepstack = fields.layers("deepstack_visual_indexes", &[8, 16, 24])?;
    let spec = without_deepstack(config)?;
    let width = spec.hidden * spec.merge * spec.merge;
    let names = ["norm", "linear_fc1", "linear_fc2"];
    let deepstack_connector = merger(spec.norm, width, spec.output, names, true);
    TowerSpec { deepstack, deepstack_connector, ..spec }.checked()
}

/// The tower of Qwen3-Omni, in which connectors have other names.
pub(super) fn omni(config: &Value) -> Result<TowerSpec> {
    let spec = spec(config)?;
    let width = spec.hidden * spec.merge * spec.merge;
    let stages = |joined_first| {
        merger(spec.norm, width, spec.output, ["ln_q", "mlp.0", "mlp.2"], joined_first)
    };
    let (connector, deepstack_connector) = (stages(false), stages(true));
    Ok(TowerSpec {
        roots: OMNI_ROOTS,
        deepstack_list: "merger_list",
        connector,
        deepstack_connector,
        ..spec
    })
}

/// The tower of a `vision_config` whose features are for the decoder's embeddings alone.
pub(super) fn without_deepstack(config: &Value) -> Result<TowerSpec> {
    let fields = VisionFields(&config["vision_config"]);
    let positions = fields.size("num_position_embeddings", 2304)?;
    let side = positions.isqrt();
    if side * side != positions {
        return Err(bad("num_position_embeddings", positions, "must be a square number"));
    }
    let mlp = TowerMlp {
        intermediate: fields.size("intermediate_size", 4304)?,
        activation: fields.activation("gelu_pytorch_tanh")?,
        gate: None,
        names: ["mlp.linear_fc1", "mlp.linear_fc2"],
        bias: true,
    };
    let (hidden, output) =
        (fields.size("hidden_size", 1152)?, fields.size("out_hidden_size", 3584)?);
    let norm = NormSpec::layer(1e-6, true);
    let spec = qwen2_vl::with(fields, [hidden, output], norm, mlp)?;
    let width = hidden * spec.merge * spec.merge;
    TowerSpec {
        patch: fields.size("patch_size", 16)?,
        patch_bias: true,
        positions: Some(Positions {
            stored: Stored::plain("pos_embed.weight"),
            side,
            fit: Fit::Corners,
        }),
        layers: fields.size("depth", 27)?,
        connector: merger(norm, width, output, ["norm", "linear_fc1", "linear_fc2"], false),
        ..spec
    }
    .checked()
}
