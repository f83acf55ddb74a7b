//! Normalization of rows: by their root mean square or by mean and variance, with a learned scale,
//! a learned bias, or neither.

use candle_core::{DType, Result, Tensor};

use crate::kernels::norm::{layer_norm, rms_norm, rms_norm_add};
use crate::weights::{WeightError, Weights};

/// Where a norm's scale comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormScale {
    /// It is `weight`.
    Stored,
    /// It is `1 + weight`.
    OnePlusStored,
    /// There is none.
    One,
}

/// Variant of a norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormSpec {
    /// Whether the mean is taken off first.
    pub centered: bool,
    /// The learned scale.
    pub scale: NormScale,
    /// Whether there is a learned bias; only of centered ones.
    pub bias: bool,
    /// Added to the mean square or the variance.
    pub eps: f32,
}

impl NormSpec {
    /// By the root mean square, with a scale.
    pub fn rms(eps: f32) -> Self {
        Self { centered: false, scale: NormScale::Stored, bias: false, eps }
    }

    /// By mean and variance, with a scale and, if `bias`, a bias.
    pub fn layer(eps: f32, bias: bool) -> Self {
        Self { centered: true, scale: NormScale::Stored, bias, eps }
    }
}

/// A norm of rows.
#[derive(Clone, Debug)]
pub enum Norm {
    /// Without taking the mean off.
    Rms(RmsNorm),
    /// With taking it off.
    Layer(LayerNorm),
}

impl Norm {
    /// Loads what `spec` says there is of `weight [width]` and `bias [width]`.
    pub fn load(
        weights: &Weights,
        width: usize,
        spec: NormSpec,
    ) -> std::result::Result<Self, WeightError> {
        let scale = match spec.scale {
            NormScale::Stored => weights.dense("weight", &[width], DType::F32)?.contiguous()?,
            NormScale::OnePlusStored => (weights.dense("weight", &[width], DType::F32)? + 1.0)?,
            NormScale::One => Tensor::ones(width, DType::F32, weights.device())?,
        };
        if !spec.centered {
            return Ok(Self::Rms(RmsNorm { weight: scale, eps: spec.eps }));
        }
        let bias = if spec.bias {
            weights.dense("bias", &[width], DType::F32)?.contiguous()?
        } else {
            Tensor::zeros(width, DType::F32, weights.device())?
        };
        Ok(Self::Layer(LayerNorm { weight: scale, bias, eps: spec.eps }))
    }

    /// `[.., width]` to the same shape.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Rms(norm) => norm.forward(x),
            Self::Layer(norm) => norm.forward(x),
        }
    }

    /// `residual + norm(x)`
    pub fn forward_add(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        match self {
            Self::Rms(norm) => rms_norm_add(x, &norm.weight, norm.eps, residual),
            Self::Layer(norm) => residual + norm.forward(x)?,
        }
    }
}

/// `x / sqrt(mean(x^2) + eps) * weight` over the last dimension.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    weight: Tensor,
    eps: f32,
}

impl RmsNorm {
    /// A norm with this scale, `[width]`.
    pub fn new(weight: Tensor, eps: f32) -> Self {
        Self { weight, eps }
    }

    /// The learned scale, `[width]`.
    pub(super) fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// What is added to the mean square.
    pub(super) fn eps(&self) -> f32 {
        self.eps
    }

    /// The same with another order of the scale's elements.
    pub(super) fn reordered(&self, order: &Tensor) -> Result<Self> {
        Ok(Self { weight: self.weight.index_select(order, 0)?, eps: self.eps })
    }

    /// `[.., width]` to the same shape.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        rms_norm(x, &self.weight, self.eps)
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
        layer_norm(x, &self.weight, &self.bias, self.eps)
    }
}
