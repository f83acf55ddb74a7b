//! A gated short convolution: `c * conv(b * x)` of three projections of the input.
//!
//! Liquid AI, "LFM2 Technical Report", 2025, section 2.

use candle_core::{DType, Result, Tensor, bail};

use crate::kernels::pointwise::Activation;
use crate::kernels::recurrence::short_conv::{Taps, short_conv};
use crate::layers::forward::Step;
use crate::layers::linear::Linear;
use crate::weights::{Loaded, WeightError, Weights};

/// Sizes of a gated short convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConvSpec {
    /// Number of channels, equal to the elements of a hidden state.
    pub channels: usize,
    /// Number of tokens that the convolution sees.
    pub taps: usize,
    /// Whether the input projection and the convolution have biases.
    pub bias: bool,
}

impl ShortConvSpec {
    /// Number of elements of the state.
    pub(super) fn states(&self) -> Vec<usize> {
        vec![(self.taps - 1) * self.channels]
    }
}

/// The weights of a gated short convolution.
#[derive(Debug)]
pub(super) struct ShortConv {
    /// The projections to b, c and x.
    inputs: [Linear; 3],
    taps: ConvTaps,
}

impl ShortConv {
    pub(super) fn load(weights: &Weights, spec: ShortConvSpec) -> Loaded<Self> {
        let ShortConvSpec { channels, taps, bias } = spec;
        let input = weights.scope("in_proj");
        let part = |index: usize| {
            let rows = index * channels..(index + 1) * channels;
            Linear::load_rows(&input, channels, 3 * channels, bias, std::slice::from_ref(&rows))
        };
        Ok(Self {
            inputs: [part(0)?, part(1)?, part(2)?],
            taps: ConvTaps::load(&weights.scope("conv"), channels, taps, bias)?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor, states: &[Tensor], step: &Step) -> Result<Tensor> {
        let [state] = states else { bail!("{} states, expected 1", states.len()) };
        let [b, c, x] = Linear::forward_each(self.inputs.each_ref(), x)?;
        c * short_conv(&(b * x)?, self.taps.taps(), state, step)?
    }
}

/// The weights of a convolution, and the activation of its sums, if there is one.
#[derive(Debug)]
pub(super) struct ConvTaps {
    /// `[taps, channels]`
    weight: Tensor,
    /// `[channels]`
    bias: Option<Tensor>,
    activation: Option<Activation>,
}

impl ConvTaps {
    /// Loads convolutions without biases, of `channels` each, which become one.
    pub(super) fn load_each(weights: &[Weights], channels: usize, taps: usize) -> Loaded<Self> {
        Self::load_parts(weights, &vec![channels; weights.len()], taps)
    }

    /// The same of so many channels each.
    pub(super) fn load_parts(weights: &[Weights], channels: &[usize], taps: usize) -> Loaded<Self> {
        let one = |(weights, channels): (&Weights, &usize)| {
            let weight = weights.dense("weight", &[*channels, 1, taps], DType::F32)?;
            Ok::<_, WeightError>(weight.reshape((*channels, taps))?.t()?.contiguous()?)
        };
        let all = weights.iter().zip(channels).map(one);
        let all = all.collect::<std::result::Result<Vec<_>, _>>()?;
        Ok(Self { weight: Tensor::cat(&all, 1)?.contiguous()?, bias: None, activation: None })
    }

    /// Loads `weight [channels, 1, taps]` and, if there is one, `bias [channels]`.
    pub(super) fn load(
        weights: &Weights,
        channels: usize,
        taps: usize,
        bias: bool,
    ) -> Loaded<Self> {
        let weight = weights.dense("weight", &[channels, 1, taps], DType::F32)?;
        let bias = bias.then(|| weights.dense("bias", &[channels], DType::F32)).transpose()?;
        Ok(Self { weight: weight.squeeze(1)?.t()?.contiguous()?, bias, activation: None })
    }

    /// The convolution with an activation.
    pub(super) fn activated(self, activation: Activation) -> Self {
        Self { activation: Some(activation), ..self }
    }

    /// The convolution of channels that are multiplied by `factors [channels]` before.
    pub(super) fn of_scaled(self, factors: &Tensor) -> Result<Self> {
        Ok(Self { weight: self.weight.broadcast_mul(factors)?, ..self })
    }

    pub(super) fn taps(&self) -> Taps<'_> {
        Taps { weight: &self.weight, bias: self.bias.as_ref(), activation: self.activation }
    }
}
