//! The gated feed-forward part of a layer: `down(activation(gate(x)) * up(x))`.

use candle_core::{Result, Tensor};

use super::linear::Linear;
use crate::kernels::gated::Activation;
use crate::weights::{WeightError, Weights};

/// Shape and variant of a feed-forward part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MlpSpec {
    /// Elements of a hidden state.
    pub hidden_size: usize,
    /// Elements between the projections.
    pub intermediate_size: usize,
    /// Biases of all three projections.
    pub bias: bool,
    /// What is applied to the gate.
    pub activation: Activation,
}

/// Weights of a feed-forward part.
#[derive(Debug)]
pub struct Mlp {
    gate: Linear,
    up: Linear,
    down: Linear,
    activation: Activation,
}

impl Mlp {
    /// Loads `gate_proj`, `up_proj` and `down_proj`.
    pub fn load(weights: &Weights, spec: MlpSpec) -> std::result::Result<Self, WeightError> {
        let MlpSpec { hidden_size: hidden, intermediate_size: inner, bias, activation } = spec;
        Ok(Self {
            gate: Linear::load(&weights.scope("gate_proj"), hidden, inner, bias)?,
            up: Linear::load(&weights.scope("up_proj"), hidden, inner, bias)?,
            down: Linear::load(&weights.scope("down_proj"), inner, hidden, bias)?,
            activation,
        })
    }

    /// `residual + mlp(x)`, all `[.., hidden]`.
    pub fn forward_add(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        let inner = Linear::forward_gated(self.activation, &self.gate, &self.up, x)?;
        self.down.forward_add(&inner, residual)
    }
}
