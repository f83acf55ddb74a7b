//! Elementwise operations: activations of one tensor, and the gating of a gated MLP, which takes two.
//!
//! Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016: the exact form, and the one with tanh.
//! Shazeer, "GLU Variants Improve Transformer", 2020.

use candle_core::{DType, Result, Tensor, bail};

pub(super) use self::args::UnaryOp;
pub use self::args::{Activation, Gating, Xielu};
use super::backend::Backend;

mod args;
pub(super) mod cpu;
pub(super) mod cuda;
pub(super) mod gated;
pub mod portable;

/// `activation(x)` of every element of `x`.
pub fn pointwise(activation: Activation, x: &Tensor) -> Result<Tensor> {
    unary(UnaryOp::Activation(activation), x)
}

/// `cap * tanh(x / cap)` of every element of `x`.
pub fn soft_cap(cap: f32, x: &Tensor) -> Result<Tensor> {
    unary(UnaryOp::SoftCap(cap), x)
}

/// `1 / (1 + e^-x)` of every element of `x`.
pub fn sigmoid(x: &Tensor) -> Result<Tensor> {
    unary(UnaryOp::Sigmoid, x)
}

/// `ln(1 + e^x)` of every element of `x`, by candle's operations on every device.
pub fn softplus(x: &Tensor) -> Result<Tensor> {
    // Without an overflow: max(x, 0) + ln(1 + e^-|x|).
    x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?
}

/// xIELU of every element of `x`.
pub fn xielu(parameters: Xielu, x: &Tensor) -> Result<Tensor> {
    unary(UnaryOp::Xielu(parameters), x)
}

fn unary(op: UnaryOp, x: &Tensor) -> Result<Tensor> {
    match Backend::of(x.device()) {
        Backend::Cpu(level) => cpu::unary(level, op, x),
        Backend::Cuda => cuda::unary(op, x),
        Backend::Portable => portable::unary(op, x),
    }
}

/// The gated elements of `gate` and `up`, f32 of one shape: to the bit what a gated product makes of
/// the same two sums.
pub fn gated_pairs(gating: Gating, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    if gate.dims() != up.dims() {
        bail!("gated_pairs: {:?} and {:?} differ", gate.dims(), up.dims());
    }
    match Backend::of(gate.device()) {
        Backend::Cpu(level) => gated::gated_pairs(level, gating, gate, up),
        Backend::Cuda => cuda::gated(gating, gate, up, DType::F32),
        Backend::Portable => portable::gated(gating, gate, up),
    }
}

/// As [`gated_pairs`], rounded to the type in which a product takes them.
pub(super) fn gated_pairs_as(
    gating: Gating,
    gate: &Tensor,
    up: &Tensor,
    dtype: DType,
) -> Result<Tensor> {
    match Backend::of(gate.device()) {
        Backend::Cuda if gate.dims() == up.dims() => cuda::gated(gating, gate, up, dtype),
        _ => gated_pairs(gating, gate, up)?.to_dtype(dtype),
    }
}
