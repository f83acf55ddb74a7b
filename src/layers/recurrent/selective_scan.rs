//! A selective scan after a short convolution, whose output is gated.
//!
//! Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023, figure 3.

use candle_core::{DType, Result, Tensor, bail};

use super::short_conv::ConvTaps;
use crate::kernels::pointwise::{Activation, gated_pairs};
use crate::kernels::recurrence::selective_scan::{Channels, selective_scan};
use crate::kernels::recurrence::short_conv::short_conv;
use crate::layers::forward::Step;
use crate::layers::linear::Linear;
use crate::layers::norm::{Norm, NormSpec};
use crate::weights::{Loaded, Weights};

/// Sizes and variant of a selective scan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectiveScanSpec {
    /// Number of channels.
    pub channels: usize,
    /// Elements of a channel's state.
    pub state_size: usize,
    /// Elements of the vector that time steps are projected from.
    pub rank: usize,
    /// Number of tokens that the convolution sees.
    pub taps: usize,
    /// Whether the convolution has a bias.
    pub conv_bias: bool,
    /// Whether the input projection has a bias.
    pub bias: bool,
    /// Activation of the convolution.
    pub activation: Activation,
    /// The norm of that vector, of B and of C, if they have one.
    pub norm: Option<NormSpec>,
}

impl SelectiveScanSpec {
    /// Number of elements of the states of the convolution and of the channels.
    pub(super) fn states(&self) -> Vec<usize> {
        vec![(self.taps - 1) * self.channels, self.channels * self.state_size]
    }
}

/// The weights of a selective scan.
#[derive(Debug)]
pub(super) struct SelectiveScan {
    /// Projections to the channels and to their gates.
    inputs: [Linear; 2],
    taps: ConvTaps,
    /// Projections of the channels to the vector of time steps, to B and to C.
    selection: [Linear; 3],
    norms: Option<[Norm; 3]>,
    steps: Linear,
    /// `[state_size, channels]`
    decay: Tensor,
    /// `[channels]`
    skip: Tensor,
}

impl SelectiveScan {
    pub(super) fn load(weights: &Weights, hidden: usize, spec: SelectiveScanSpec) -> Loaded<Self> {
        let SelectiveScanSpec { channels, state_size, rank, .. } = spec;
        let part = |name: &str, inputs, all, bias, start, count| {
            let rows = start..start + count;
            let own = std::slice::from_ref(&rows);
            Linear::load_rows(&weights.scope(name), inputs, all, bias, own)
        };
        let input = |start| part("in_proj", hidden, 2 * channels, spec.bias, start, channels);
        let all = rank + 2 * state_size;
        let selection = |start, count| part("x_proj", channels, all, false, start, count);
        let norms = |norm: NormSpec| {
            let load = |name, width| Norm::load(&weights.scope(name), width, norm);
            Ok::<_, crate::weights::WeightError>([
                load("dt_layernorm", rank)?,
                load("b_layernorm", state_size)?,
                load("c_layernorm", state_size)?,
            ])
        };
        // GGUF files have the decay itself, others its logarithm.
        let shape = [channels, state_size];
        let decay = if weights.contains("A") {
            weights.dense("A", &shape, DType::F32)?
        } else {
            weights.dense("A_log", &shape, DType::F32)?.exp()?.neg()?
        };
        let taps = ConvTaps::load(&weights.scope("conv1d"), channels, spec.taps, spec.conv_bias)?;
        Ok(Self {
            inputs: [input(0)?, input(channels)?],
            taps: taps.activated(spec.activation),
            selection: [
                selection(0, rank)?,
                selection(rank, state_size)?,
                selection(rank + state_size, state_size)?,
            ],
            norms: spec.norm.map(norms).transpose()?,
            steps: Linear::load(&weights.scope("dt_proj"), rank, channels, true)?,
            decay: decay.t()?.contiguous()?,
            skip: weights.dense("D", &[channels], DType::F32)?,
        })
    }

    pub(super) fn forward(&self, x: &Tensor, states: &[Tensor], step: &Step) -> Result<Tensor> {
        let [last, state] = states else { bail!("{} states, expected 2", states.len()) };
        let [x, gate] = Linear::forward_each(self.inputs.each_ref(), x)?;
        let x = short_conv(&x, self.taps.taps(), last, step)?;
        let mut selection = Linear::forward_each(self.selection.each_ref(), &x)?;
        for (vector, norm) in selection.iter_mut().zip(self.norms.iter().flatten()) {
            *vector = norm.forward(vector)?;
        }
        let [steps, writes, reads] = selection;
        let steps = self.steps.forward(&steps)?;
        let vectors = Tensor::cat(&[writes, reads], 1)?;
        let channels = Channels { decay: &self.decay, skip: &self.skip };
        let y = selective_scan(&x, &steps, &vectors, channels, state, step)?;
        gated_pairs(Activation::Silu.into(), &gate, &y)
    }
}
