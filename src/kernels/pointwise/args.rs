//! Elementwise operations by name: activations, and how a gate is applied.

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`, also called swish.
    Silu,
    /// `x / 2 * (1 + erf(x / sqrt(2)))`
    Gelu,
    /// `Gelu` with tanh in place of erf: `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    GeluTanh,
    /// `max(x, 0)`
    Relu,
    /// `max(x, 0)^2`
    ReluSquared,
}

#[cfg(test)]
pub(super) const ALL: [Activation; 5] = [
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Relu,
    Activation::ReluSquared,
];

/// The parameters of xIELU: `positive * x^2 + beta * x` above zero and
/// `negative * (e^x - 1 - x) + beta * x` below. Huang and Schlag, "Deriving Activation Functions Using
/// Integration", 2024.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xielu {
    /// Factor of the square.
    pub positive: f32,
    /// Factor of the exponential part.
    pub negative: f32,
    /// Factor of the linear part.
    pub beta: f32,
}

/// An operation on every element of a tensor.
#[derive(Clone, Copy)]
pub(crate) enum UnaryOp {
    Activation(Activation),
    /// `cap * tanh(x / cap)`
    SoftCap(f32),
    Sigmoid,
    Xielu(Xielu),
}

/// How a gated MLP joins the outputs of its gate and up projections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gating {
    /// `activation(gate) * up`
    Activation(Activation),
    /// `gate * sigmoid(alpha * gate) * (up + 1)`, the gate at most `limit` and `up` within
    /// `-limit..=limit`.
    Clamped {
        /// Factor of the gate inside of the sigmoid.
        alpha: f32,
        /// Bound of the gate and of `up`.
        limit: f32,
    },
    /// `silu(gate) * up`, the first at most `limit` and `up` within `-limit..=limit`.
    Limited {
        /// Bound of both factors.
        limit: f32,
    },
    /// `silu(gate) * up`, `gate` at most `limit` and `up` within `-limit..=limit`.
    Bounded {
        /// Bound of the gate and of `up`.
        limit: f32,
    },
}

impl From<Activation> for Gating {
    fn from(activation: Activation) -> Self {
        Self::Activation(activation)
    }
}
