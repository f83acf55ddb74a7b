//! Root mean square normalization with a learned scale.

use candle_core::{DType, Result, Tensor};

use crate::kernels::rms_norm;
use crate::weights::{WeightError, Weights};

/// `x / sqrt(mean(x^2) + eps) * weight` over the last dimension.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    weight: Tensor,
    eps: f32,
}

impl RmsNorm {
    /// Loads `weight [width]`.
    pub fn load(
        weights: &Weights,
        width: usize,
        eps: f32,
    ) -> std::result::Result<Self, WeightError> {
        let weight = weights.dense("weight", &[width], DType::F32)?.contiguous()?;
        Ok(Self { weight, eps })
    }

    /// The learned scale, `[width]`.
    pub(super) fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// What is added to the mean square.
    pub(super) fn eps(&self) -> f32 {
        self.eps
    }

    /// `[.., width]` to the same shape.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        rms_norm::rms_norm(x, &self.weight, self.eps)
    }
}
