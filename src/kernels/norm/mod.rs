//! Normalization of rows, with what is added to them afterwards.
//!
//! Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; Ba, Kiros and Hinton, "Layer
//! Normalization", 2016.

use candle_core::{DType, Result, Tensor, bail};

use super::backend::Backend;

pub(super) mod cpu;
mod cuda;
pub mod portable;
#[cfg(test)]
mod tests;

/// `x / sqrt(mean(x^2) + eps) * weight` over the last dimension of `x [.., D]`; `weight [D]`.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    rms_norm_as(x, weight, eps, DType::F32)
}

/// As [`rms_norm`], rounded to a type.
pub fn rms_norm_as(x: &Tensor, weight: &Tensor, eps: f32, dtype: DType) -> Result<Tensor> {
    match Backend::of(x.device()) {
        Backend::Cpu(level) => cpu::rms_norm(level, x, weight, eps, None, dtype)?.to_dtype(dtype),
        Backend::Cuda => cuda::rms_norm(x, weight, eps, None, dtype),
        Backend::Portable => portable::rms_norm(x, weight, eps)?.to_dtype(dtype),
    }
}

/// `residual + rms_norm(x)`, both `[.., D]`.
pub fn rms_norm_add(x: &Tensor, weight: &Tensor, eps: f32, residual: &Tensor) -> Result<Tensor> {
    if x.dims() != residual.dims() {
        bail!("rms_norm_add: {:?} and {:?} differ", x.dims(), residual.dims());
    }
    match Backend::of(x.device()) {
        Backend::Cpu(level) => cpu::rms_norm(level, x, weight, eps, Some(residual), DType::F32),
        Backend::Cuda => cuda::rms_norm(x, weight, eps, Some(residual), DType::F32),
        Backend::Portable => residual + portable::rms_norm(x, weight, eps)?,
    }
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last dimension of `x [.., D]`;
/// `weight [D]`, `bias [D]`.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f32) -> Result<Tensor> {
    layer_norm_as(x, weight, bias, eps, DType::F32)
}

/// As [`layer_norm`], rounded to a type.
pub fn layer_norm_as(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    eps: f32,
    dtype: DType,
) -> Result<Tensor> {
    match Backend::of(x.device()) {
        Backend::Cpu(level) => cpu::layer_norm(level, x, weight, bias, eps, dtype)?.to_dtype(dtype),
        Backend::Cuda if weight.dims().len() == 1 => cuda::layer_norm(x, weight, bias, eps, dtype),
        Backend::Cuda | Backend::Portable => {
            portable::layer_norm(x, weight, bias, eps)?.to_dtype(dtype)
        }
    }
}
