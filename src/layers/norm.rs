//! Normalization of hidden states with a learned scale, and where it is moved, a learned bias.

use candle_core::{DType, Result, Tensor};

use crate::kernels::{layer_norm, rms_norm};
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

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last dimension.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    eps: f32,
}

impl LayerNorm {
    /// Loads `weight [width]` and `bias [width]`, which checkpoints that came from TensorFlow call
    /// `gamma` and `beta`.
    pub fn load(
        weights: &Weights,
        width: usize,
        eps: f32,
    ) -> std::result::Result<Self, WeightError> {
        let load = |name: &str, old: &str| {
            let name = if weights.contains(old) { old } else { name };
            let tensor = weights.dense(name, &[width], DType::F32)?;
            Ok::<_, WeightError>(tensor.contiguous()?)
        };
        Ok(Self { weight: load("weight", "gamma")?, bias: load("bias", "beta")?, eps })
    }

    /// `[.., width]` to the same shape.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        layer_norm::layer_norm(x, &self.weight, &self.bias, self.eps)
    }
}
