//! A selective state space after a short convolution; its output is gated and, in most models,
//! normalized.
//!
//! Dao and Gu, "Transformers are SSMs", 2024, figure 6: the parallel block.

use candle_core::{DType, Result, Tensor, bail};

use super::short_conv::ConvTaps;
use crate::kernels::norm::rms_norm;
use crate::kernels::pointwise::{Activation, gated_pairs};
use crate::kernels::recurrence::short_conv::short_conv;
use crate::kernels::recurrence::state_space::{Heads, state_space};
use crate::layers::forward::Step;
use crate::layers::linear::Linear;
use crate::weights::{Loaded, Weights};

/// Sizes and variant of a selective state space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateSpaceSpec {
    /// Number of heads.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Elements of the state for each element of a head.
    pub state_size: usize,
    /// Number of groups of heads. The heads of a group share B and C, which write and read states,
    /// and are normalized together.
    pub groups: usize,
    /// Number of tokens that the convolution sees.
    pub taps: usize,
    /// Whether the convolution has a bias.
    pub conv_bias: bool,
    /// Whether the input projection has a bias.
    pub bias: bool,
    /// Activation of the convolution.
    pub activation: Activation,
    /// Lower and upper bound of time steps.
    pub step_limits: [f32; 2],
    /// The norm of what the state space gives, if it has one.
    pub norm: Option<SpaceNorm>,
    /// Factors of the input projection's parts: gates, heads, B, C and time steps.
    pub factors: Option<[f32; 5]>,
}

/// The norm of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpaceNorm {
    /// Epsilon.
    pub eps: f32,
    /// Whether gates multiply what is normalized already.
    pub before_gate: bool,
}

impl StateSpaceSpec {
    /// Number of elements of all heads.
    pub(super) fn inner(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Channels of the convolution: the heads, and B and C of each group.
    fn channels(&self) -> usize {
        self.inner() + 2 * self.groups * self.state_size
    }

    /// Number of elements of the states of the convolution and of the heads.
    pub(super) fn states(&self) -> Vec<usize> {
        vec![(self.taps - 1) * self.channels(), self.inner() * self.state_size]
    }
}

/// The weights of a selective state space.
#[derive(Debug)]
pub(super) struct StateSpace {
    spec: StateSpaceSpec,
    /// Projections to gates, to the channels of the convolution, and to time steps.
    inputs: [Linear; 3],
    taps: ConvTaps,
    /// `[heads]`, as are `skip` and `step_bias`.
    decay: Tensor,
    skip: Tensor,
    step_bias: Tensor,
    norm: Option<GroupNorm>,
}

impl StateSpace {
    pub(super) fn load(weights: &Weights, hidden: usize, spec: StateSpaceSpec) -> Loaded<Self> {
        let StateSpaceSpec { heads, bias, .. } = spec;
        let (inner, channels) = (spec.inner(), spec.channels());
        let input = weights.scope("in_proj");
        let part = |start: usize, count: usize| {
            let rows = start..start + count;
            let all = inner + channels + heads;
            Linear::load_rows(&input, hidden, all, bias, std::slice::from_ref(&rows))
        };
        let of_heads = |name: &str| weights.dense(name, &[heads], DType::F32);
        // GGUF files have the decay itself, others its logarithm.
        let decay =
            if weights.contains("A") { of_heads("A")? } else { of_heads("A_log")?.exp()?.neg()? };
        let mut taps =
            ConvTaps::load(&weights.scope("conv1d"), channels, spec.taps, spec.conv_bias)?;
        if let Some([_, heads, b, c, _]) = spec.factors {
            let vectors = spec.groups * spec.state_size;
            let factors = [(heads, inner), (b, vectors), (c, vectors)];
            let factors = factors.into_iter().flat_map(|(x, count)| std::iter::repeat_n(x, count));
            taps = taps.of_scaled(&Tensor::from_iter(factors, weights.device())?)?;
        }
        let norm = spec
            .norm
            .map(|norm| GroupNorm::load(&weights.scope("norm"), inner, spec.groups, norm.eps));
        Ok(Self {
            spec,
            inputs: [part(0, inner)?, part(inner, channels)?, part(inner + channels, heads)?],
            taps: taps.activated(spec.activation),
            decay,
            skip: of_heads("D")?,
            step_bias: of_heads("dt_bias")?,
            norm: norm.transpose()?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor, states: &[Tensor], step: &Step) -> Result<Tensor> {
        let [last, state] = states else { bail!("{} states, expected 2", states.len()) };
        let [mut gate, x, mut steps] = Linear::forward_each(self.inputs.each_ref(), x)?;
        if let Some([gates, .., of_steps]) = self.spec.factors {
            gate = (gate * f64::from(gates))?;
            steps = (steps * f64::from(of_steps))?;
        }
        let x = short_conv(&x, self.taps.taps(), last, step)?;
        let heads = Heads {
            decay: &self.decay,
            skip: &self.skip,
            step_bias: &self.step_bias,
            step_limits: self.spec.step_limits,
            head_dim: self.spec.head_dim,
            state_size: self.spec.state_size,
            groups: self.spec.groups,
        };
        let y = state_space(&x, &steps, heads, state, step)?;
        let gated = |y: &Tensor| gated_pairs(Activation::Silu.into(), &gate, y);
        match (&self.norm, self.spec.norm) {
            (Some(norm), Some(SpaceNorm { before_gate: true, .. })) => gated(&norm.forward(&y)?),
            (Some(norm), _) => norm.forward(&gated(&y)?),
            (None, _) => gated(&y),
        }
    }
}

/// An RMS norm of equal parts of a row.
#[derive(Debug)]
struct GroupNorm {
    /// `[width]`
    weight: Tensor,
    /// `[width / groups]` of ones, if there are several groups.
    ones: Option<Tensor>,
    eps: f32,
}

impl GroupNorm {
    fn load(weights: &Weights, width: usize, groups: usize, eps: f32) -> Loaded<Self> {
        let weight = weights.dense("weight", &[width], DType::F32)?.contiguous()?;
        let ones = (groups > 1)
            .then(|| Tensor::ones(width / groups, DType::F32, weights.device()))
            .transpose()?;
        Ok(Self { weight, ones, eps })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let Some(ones) = &self.ones else { return rms_norm(x, &self.weight, self.eps) };
        let (rows, width) = x.dims2()?;
        let part = ones.dim(0)?;
        let x = rms_norm(&x.reshape((rows, width / part, part))?, ones, self.eps)?;
        x.reshape((rows, width))?.broadcast_mul(&self.weight)
    }
}
