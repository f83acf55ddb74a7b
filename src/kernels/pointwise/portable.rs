//! Elementwise operations in plain candle operations.

use candle_core::{Result, Tensor};

use super::args::{Activation, Gating, UnaryOp, Xielu};

pub(super) fn unary(op: UnaryOp, x: &Tensor) -> Result<Tensor> {
    match op {
        UnaryOp::Activation(activation) => pointwise(activation, x),
        UnaryOp::SoftCap(cap) => soft_cap(cap, x),
        UnaryOp::Sigmoid => (x.neg()?.exp()? + 1.0)?.recip(),
        UnaryOp::Xielu(parameters) => xielu(parameters, x),
    }
}

/// `activation(x)` of every element.
pub fn pointwise(activation: Activation, x: &Tensor) -> Result<Tensor> {
    match activation {
        Activation::Silu => x.silu(),
        Activation::Gelu => x.gelu_erf(),
        Activation::GeluTanh => x.gelu(),
        Activation::Relu => x.relu(),
        Activation::ReluSquared => x.relu()?.sqr(),
    }
}

/// xIELU of every element.
pub fn xielu(parameters: Xielu, x: &Tensor) -> Result<Tensor> {
    let (above, below) = (x.relu()?, x.neg()?.relu()?.neg()?);
    let curve = ((below.exp()? - 1.0)? - below)?;
    let parts = ((above.sqr()? * f64::from(parameters.positive))?
        + (curve * f64::from(parameters.negative))?)?;
    parts + (x * f64::from(parameters.beta))?
}

/// `cap * tanh(x / cap)` of every element.
pub fn soft_cap(cap: f32, x: &Tensor) -> Result<Tensor> {
    (x / f64::from(cap))?.tanh()? * f64::from(cap)
}

/// The gated elements of `gate` and `up`.
pub fn gated(gating: Gating, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    match gating {
        Gating::Activation(activation) => pointwise(activation, gate)? * up,
        Gating::Clamped { alpha, limit } => {
            let gate = gate.minimum(limit)?;
            let up = up.clamp(-limit, limit)?;
            let sigmoid = ((&gate * f64::from(-alpha))?.exp()? + 1.0)?.recip()?;
            (gate * sigmoid)? * (up + 1.0)?
        }
        Gating::Limited { limit } => {
            pointwise(Activation::Silu, gate)?.minimum(limit)? * up.clamp(-limit, limit)?
        }
        Gating::Bounded { limit } => {
            pointwise(Activation::Silu, &gate.minimum(limit)?)? * up.clamp(-limit, limit)?
        }
    }
}
