//! The learned part of a state space.

use candle_core::Tensor;

/// The operation's name in errors.
pub(super) const NAME: &str = "state_space";

/// The learned vectors of a selective state space, and its shape.
#[derive(Clone, Copy, Debug)]
pub struct Heads<'a> {
    /// `[H]`: the logarithm of a state's decay per unit of time, below zero.
    pub decay: &'a Tensor,
    /// `[H]`: the factor of the input that is added to the output.
    pub skip: &'a Tensor,
    /// `[H]`: added to time steps before their softplus.
    pub step_bias: &'a Tensor,
    /// Least and largest time step.
    pub step_limits: [f32; 2],
    /// P: elements of a head.
    pub head_dim: usize,
    /// N: rows of a head's state.
    pub state_size: usize,
    /// G, a divisor of H: heads of a group share the vectors `b` and `c`.
    pub groups: usize,
}
