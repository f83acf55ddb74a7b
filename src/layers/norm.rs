//! RMS norms and layer norms of rows, with a learned scale, a learned bias, or neither.

use candle_core::{DType, Result, Tensor};

use crate::kernels::norm::{layer_norm, layer_norm_as, rms_norm, rms_norm_add, rms_norm_as};
use crate::weights::{Loaded, WeightError, Weights};

/// The scale of a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormScale {
    /// `weight`, as it is stored.
    Stored,
    /// `1 + weight`.
    OnePlusStored,
    /// No scale.
    One,
    /// What gives rows of length one: epsilon is added to the sum of squares, not to their mean.
    UnitLength,
}

/// The variant of a norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormSpec {
    /// Whether it is a layer norm, which subtracts the mean, and not an RMS norm.
    pub centered: bool,
    /// The scale.
    pub scale: NormScale,
    /// Whether a layer norm has a bias.
    pub bias: bool,
    /// Epsilon, added to the mean square or the variance.
    pub eps: f32,
}

impl NormSpec {
    /// An RMS norm with a scale.
    pub fn rms(eps: f32) -> Self {
        Self { centered: false, scale: NormScale::Stored, bias: false, eps }
    }

    /// A layer norm with a scale and, if `bias`, a bias.
    pub fn layer(eps: f32, bias: bool) -> Self {
        Self { centered: true, scale: NormScale::Stored, bias, eps }
    }
}

/// A norm of rows.
#[derive(Clone, Debug)]
pub enum Norm {
    /// An RMS norm.
    Rms(RmsNorm),
    /// A layer norm.
    Layer(LayerNorm),
}

impl Norm {
    /// Loads those of `weight [width]` and `bias [width]` that `spec` has.
    #[expect(clippy::cast_precision_loss, reason = "widths are below 2^24")]
    pub fn load(weights: &Weights, width: usize, spec: NormSpec) -> Loaded<Self> {
        let scale = match spec.scale {
            NormScale::Stored => weights.dense("weight", &[width], DType::F32)?.contiguous()?,
            NormScale::OnePlusStored => (weights.dense("weight", &[width], DType::F32)? + 1.0)?,
            NormScale::One => Tensor::ones(width, DType::F32, weights.device())?,
            NormScale::UnitLength => {
                (Tensor::ones(width, DType::F32, weights.device())? / (width as f64).sqrt())?
            }
        };
        if !spec.centered {
            let of_mean = spec.scale != NormScale::UnitLength;
            let eps = if of_mean { spec.eps } else { spec.eps / width as f32 };
            return Ok(Self::Rms(RmsNorm { weight: scale, eps }));
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

    /// As [`forward`](Self::forward), rounded to a type.
    pub fn forward_as(&self, x: &Tensor, dtype: DType) -> Result<Tensor> {
        match self {
            Self::Rms(norm) => rms_norm_as(x, &norm.weight, norm.eps, dtype),
            Self::Layer(norm) => layer_norm_as(x, &norm.weight, &norm.bias, norm.eps, dtype),
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

    /// Epsilon, added to the mean square.
    pub(super) fn eps(&self) -> f32 {
        self.eps
    }

    /// The norm with the elements of its scale in this order.
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
    /// Loads `weight [width]` and `bias [width]`, which checkpoints converted from TensorFlow call
    /// `gamma` and `beta`.
    pub fn load(weights: &Weights, width: usize, eps: f32) -> Loaded<Self> {
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
