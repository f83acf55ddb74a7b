//! The fields of `config.json` that describe a tower.

use serde_json::Value;

use super::spec::TowerActivation;
use crate::kernels::pointwise::Activation;
use crate::models::error::{Result, bad};

/// The most layers of a tower.
const MAX_LAYERS: usize = 1 << 10;
/// The largest size of a tower in any direction.
const MAX_SIZE: usize = 1 << 20;

/// The fields of a `vision_config`.
#[derive(Clone, Copy)]
pub(in crate::models) struct VisionFields<'a>(pub(in crate::models) &'a Value);

impl VisionFields<'_> {
    /// A size, 1 at least.
    pub(in crate::models) fn size(self, field: &'static str, default: usize) -> Result<usize> {
        let value = &self.0[field];
        if value.is_null() {
            return Ok(default);
        }
        let layers = matches!(field, "depth" | "num_hidden_layers" | "encoder_layers");
        let most = if layers { MAX_LAYERS } else { MAX_SIZE };
        let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
        size.filter(|size| (1..=most).contains(size))
            .ok_or_else(|| bad(field, value, format!("must be 1 to {most}")))
    }

    /// Indices of layers.
    pub(super) fn layers(self, field: &'static str, default: &[usize]) -> Result<Vec<usize>> {
        match &self.0[field] {
            Value::Null => Ok(default.to_vec()),
            value => serde_json::from_value(value.clone())
                .map_err(|_| bad(field, value, "must be a list of layers")),
        }
    }

    /// The activation of the feed-forward part.
    pub(super) fn activation(self, default: &str) -> Result<TowerActivation> {
        self.activation_of("hidden_act", default)
    }

    /// An activation.
    pub(in crate::models) fn activation_of(
        self,
        field: &'static str,
        default: &str,
    ) -> Result<TowerActivation> {
        let name = self.0[field].as_str().unwrap_or(default);
        Ok(match name {
            "quick_gelu" => TowerActivation::QuickGelu,
            "silu" => TowerActivation::Common(Activation::Silu),
            "gelu" => TowerActivation::Common(Activation::Gelu),
            "gelu_pytorch_tanh" => TowerActivation::Common(Activation::GeluTanh),
            "relu" => TowerActivation::Common(Activation::Relu),
            other => {
                let bound = "supported are quick_gelu, silu, gelu, gelu_pytorch_tanh, relu";
                return Err(bad(field, other, bound));
            }
        })
    }

    /// A small number above zero.
    #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
    pub(super) fn eps(self, field: &'static str, default: f64) -> Result<f32> {
        let eps = self.0[field].as_f64().unwrap_or(default);
        if (0.0..1.0).contains(&eps) {
            return Ok(eps as f32);
        }
        Err(bad(field, eps, "must be at least 0 and less than 1"))
    }

    /// A side of the square that a field says as a number or twice.
    pub(super) fn square(self, field: &'static str, default: usize) -> Result<usize> {
        let value = &self.0[field];
        match value.as_array().map(Vec::as_slice) {
            Some([one, two]) if one == two => {
                VisionFields(&serde_json::json!({field: one})).size(field, default)
            }
            _ => self.size(field, default),
        }
    }

    /// How many of the tower's `layers` are computed where the file names the layer whose output is
    /// looked at, counted from the end.
    pub(super) fn computed_layers(
        self,
        field: &'static str,
        default: i64,
        layers: usize,
    ) -> Result<usize> {
        let value = &self.0[field];
        let layer = if value.is_null() { Some(default) } else { value.as_i64() };
        let before_end =
            layer.filter(|layer| *layer < 0).and_then(|layer| usize::try_from(-layer - 1).ok());
        let computed = before_end.and_then(|skipped| layers.checked_sub(skipped));
        let computed = computed.filter(|count| *count > 0);
        computed.ok_or_else(|| bad(field, value, format!("must be -1 to -{layers}: one layer")))
    }

    /// After how many of the tower's `layers` hidden states are looked at: a layer's number or a list of
    /// them, counted from the embeddings, or from the end where negative.
    pub(super) fn looked_at(
        self,
        field: &'static str,
        default: &[i64],
        layers: usize,
    ) -> Result<Vec<usize>> {
        let value = &self.0[field];
        let given = match value {
            Value::Null => Some(default.to_vec()),
            Value::Array(list) => list.iter().map(Value::as_i64).collect(),
            one => one.as_i64().map(|one| vec![one]),
        };
        let behind = |layer: i64| {
            let from_end =
                usize::try_from(-layer - 1).ok().and_then(|skip| layers.checked_sub(skip));
            let own = if layer < 0 { from_end } else { usize::try_from(layer).ok() };
            own.filter(|count| (1..=layers).contains(count))
        };
        let given = given.filter(|given| !given.is_empty());
        let counts = given.and_then(|given| given.into_iter().map(behind).collect());
        let bound = format!("must be layers, 1 to {layers} or -1 to -{layers}");
        counts.ok_or_else(|| bad(field, value, bound))
    }

    /// Base of the rotary embedding.
    #[expect(clippy::cast_possible_truncation, reason = "computed in f32 by the reference")]
    pub(super) fn rope_theta_or(self, default: f64) -> Result<f32> {
        let theta = self.0["rope_parameters"]["rope_theta"].as_f64().unwrap_or(default);
        if !(theta.is_finite() && theta > 0.0) {
            return Err(bad("vision_config.rope_theta", theta, "must be a positive number"));
        }
        Ok(theta as f32)
    }
}
