//! Normalization of rows in plain candle operations.

use candle_core::{D, Result, Tensor};

/// `x / sqrt(mean(x^2) + eps) * weight` over the last dimension.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
    x.broadcast_div(&(mean + f64::from(eps))?.sqrt()?)?.broadcast_mul(weight)
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last dimension.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f32) -> Result<Tensor> {
    let x = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    rms_norm(&x, weight, eps)?.broadcast_add(bias)
}
