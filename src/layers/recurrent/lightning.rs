//! Linear attention whose memory fades by a fixed factor of each head, and is gated and normalized.
//!
//! MiniMax, "MiniMax-01: Scaling Foundation Models with Lightning Attention", 2025. Keys write values to a
//! state and queries read it, as C and B do in a selective state space with time steps of one.

use candle_core::{DType, Result, Tensor, bail};

use crate::kernels::pointwise::{Activation, pointwise, sigmoid};
use crate::kernels::recurrence::state_space::{Heads, state_space};
use crate::layers::forward::Step;
use crate::layers::linear::Linear;
use crate::layers::norm::{Norm, NormSpec};
use crate::weights::{Loaded, Weights};

/// Sizes and variant of linear attention with fixed decays.
#[derive(Clone, Debug, PartialEq)]
pub struct LightningSpec {
    /// Elements of a head.
    pub head_dim: usize,
    /// The rate at which each head of each layer forgets: after a token the state is multiplied by e to
    /// the power of minus this.
    pub rates: Vec<Vec<f32>>,
    /// Activation of queries, keys and values.
    pub activation: Activation,
    /// The norm of all heads together.
    pub norm: NormSpec,
}

impl LightningSpec {
    fn heads(&self) -> usize {
        self.rates.first().map_or(0, Vec::len)
    }

    /// Number of elements of all heads.
    pub(super) fn inner(&self) -> usize {
        self.heads() * self.head_dim
    }

    /// Number of elements of the state.
    pub(super) fn states(&self) -> Vec<usize> {
        vec![self.inner() * self.head_dim]
    }
}

/// The weights of linear attention with fixed decays.
#[derive(Debug)]
pub(super) struct Lightning {
    /// Projection to the values of all heads, then their keys, then their queries.
    inputs: Linear,
    gate: Linear,
    norm: Norm,
    activation: Activation,
    /// `[heads]`, as is `zero`.
    decay: Tensor,
    zero: Tensor,
    head_dim: usize,
}

impl Lightning {
    /// Loads the weights of layer `index`.
    pub(super) fn load(
        weights: &Weights,
        hidden: usize,
        spec: &LightningSpec,
        index: usize,
    ) -> Loaded<Self> {
        let (heads, dim, inner) = (spec.heads(), spec.head_dim, spec.inner());
        // Each head has its query, key and value together.
        let parts = |part: usize| (0..heads).map(move |head| 3 * head + part);
        let rows = [2, 1, 0].into_iter().flat_map(parts);
        let rows: Vec<_> = rows.map(|part| part * dim..(part + 1) * dim).collect();
        let qkv = weights.scope("qkv_proj");
        let decay = spec.rates[index].iter().map(|rate| -rate);
        let decay = Tensor::from_iter(decay, weights.device())?;
        Ok(Self {
            inputs: Linear::load_rows(&qkv, hidden, 3 * inner, false, &rows)?,
            gate: Linear::load(&weights.scope("output_gate"), hidden, inner, false)?,
            norm: Norm::load(&weights.scope("norm"), inner, spec.norm)?,
            activation: spec.activation,
            zero: decay.zeros_like()?,
            decay,
            head_dim: dim,
        })
    }

    pub(super) fn forward(&self, x: &Tensor, states: &[Tensor], step: &Step) -> Result<Tensor> {
        let [state] = states else { bail!("{} states, expected 1", states.len()) };
        let gate = sigmoid(&self.gate.forward(x)?)?;
        let x = pointwise(self.activation, &self.inputs.forward(x)?)?;
        let count = self.decay.dim(0)?;
        let steps = Tensor::zeros((x.dim(0)?, count), DType::F32, x.device())?;
        let heads = Heads {
            decay: &self.decay,
            skip: &self.zero,
            step_bias: &self.zero,
            step_limits: [1.0, 1.0],
            head_dim: self.head_dim,
            state_size: self.head_dim,
            groups: count,
        };
        gate * self.norm.forward(&state_space(&x, &steps, heads, state, step)?)?
    }
}
