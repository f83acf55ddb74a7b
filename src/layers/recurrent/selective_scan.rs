//! A selective scan after a short convolution, whose output is gated.
//!
//! Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023, figure 3.

use std::ops::Range;

use candle_core::{DType, Result, Tensor, bail};

use super::short_conv::ConvTaps;
use crate::kernels::pointwise::{Activation, gated_pairs};
use crate::kernels::recurrence::selective_scan::{Channels, selective_scan};
use crate::kernels::recurrence::short_conv::short_conv;
use crate::layers::forward::Step;
use crate::layers::linear::{Linear, Matrix};
use crate::layers::norm::{Norm, NormSpec};
use crate::weights::{Loaded, StoredTensor, WeightError, Weights};

/// Sizes and variant of a selective scan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectiveScanSpec {
    /// Number of channels.
    pub channels: usize,
    /// Number of heads, equal parts of the channels with a selection of their own each, of which a tensor
    /// has all and whose gates are stored between channels; `None`: all channels have one selection.
    pub heads: Option<usize>,
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
    /// Number of elements of the states of the convolution and of the channels of each head.
    pub(super) fn states(&self) -> Vec<usize> {
        let heads = self.heads.unwrap_or(1);
        let head = self.channels / heads * self.state_size;
        [vec![(self.taps - 1) * self.channels], vec![head; heads]].concat()
    }
}

/// The weights of a selective scan.
#[derive(Debug)]
pub(super) struct SelectiveScan {
    /// Projections to the channels and to their gates.
    inputs: [Linear; 2],
    taps: ConvTaps,
    heads: Vec<Head>,
}

/// What channels are selected by, and how their states fade.
#[derive(Debug)]
struct Head {
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
        let channels = spec.channels;
        let input = |rows: &[Range<usize>]| {
            Linear::load_rows(&weights.scope("in_proj"), hidden, 2 * channels, spec.bias, rows)
        };
        let every_second = |first: usize| -> Vec<Range<usize>> {
            (0..channels).map(|channel| 2 * channel + first).map(|row| row..row + 1).collect()
        };
        let [first, second] = match spec.heads {
            None => [0..channels, channels..2 * channels].map(|half| vec![half]),
            Some(_) => [every_second(0), every_second(1)],
        };
        let taps = ConvTaps::load(&weights.scope("conv1d"), channels, spec.taps, spec.conv_bias)?;
        Ok(Self {
            inputs: [input(&first)?, input(&second)?],
            taps: taps.activated(spec.activation),
            heads: match spec.heads {
                None => vec![Head::load(weights, spec)?],
                Some(heads) => Head::load_each(weights, spec, heads)?,
            },
        })
    }

    pub(super) fn forward(&self, x: &Tensor, states: &[Tensor], step: &Step) -> Result<Tensor> {
        let count = self.heads.len();
        let (last, states) = match states.split_first() {
            Some((last, states)) if states.len() == count => (last, states),
            _ => bail!("{} states, expected {}", states.len(), 1 + count),
        };
        let [x, gate] = Linear::forward_each(self.inputs.each_ref(), x)?;
        let x = short_conv(&x, self.taps.taps(), last, step)?;
        let width = x.dim(1)? / count;
        let of_head = |(index, (head, state)): (usize, (&Head, &Tensor))| {
            head.forward(&x.narrow(1, index * width, width)?.contiguous()?, state, step)
        };
        let heads = self.heads.iter().zip(states).enumerate().map(of_head);
        let y = Tensor::cat(&heads.collect::<Result<Vec<_>>>()?, 1)?;
        gated_pairs(Activation::Silu.into(), &gate, &y)
    }
}

impl Head {
    /// Loads the only head: `x_proj`, `dt_proj`, `A_log` (or `A`) and `D`.
    fn load(weights: &Weights, spec: SelectiveScanSpec) -> Loaded<Self> {
        let SelectiveScanSpec { channels, state_size, rank, .. } = spec;
        let all = rank + 2 * state_size;
        let selection = |start: usize, count: usize| {
            let rows = start..start + count;
            let own = std::slice::from_ref(&rows);
            Linear::load_rows(&weights.scope("x_proj"), channels, all, false, own)
        };
        let norms = |norm: NormSpec| {
            let load = |name, width| Norm::load(&weights.scope(name), width, norm);
            Ok::<_, WeightError>([
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
        Ok(Self {
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

    /// Loads heads of `width` channels from tensors of all of them: `x_proj_weight [heads, rank + 2 *
    /// state_size, width]`, `dt_proj_weight [heads, width, rank]`, `dt_proj_bias [heads, width]`, `A_log
    /// [heads, width, state_size]` and `D [heads, width]`.
    fn load_each(weights: &Weights, spec: SelectiveScanSpec, heads: usize) -> Loaded<Vec<Self>> {
        let SelectiveScanSpec { channels, state_size, rank, .. } = spec;
        let (width, all) = (channels / heads, rank + 2 * state_size);
        let selections = weights.stored("x_proj_weight", &[heads, all, width])?;
        let steps = weights.stored("dt_proj_weight", &[heads, width, rank])?;
        let biases = weights.dense("dt_proj_bias", &[heads, width], DType::F32)?;
        let decays = weights.dense("A_log", &[heads, width, state_size], DType::F32)?;
        let decays = decays.exp()?.neg()?;
        let skips = weights.dense("D", &[heads, width], DType::F32)?;
        let linear = |all: &StoredTensor, start: usize, count: usize, bias| {
            let rows = start..start + count;
            let own = all.rows(std::slice::from_ref(&rows))?;
            let matrix = Matrix::from_stored(weights, &own, weights.rounding())?;
            Ok::<_, WeightError>(Linear::from_matrix(matrix, bias)?)
        };
        let head = |head: usize| {
            let selection = |start, count| linear(&selections, head * all + start, count, None);
            Ok::<_, WeightError>(Self {
                selection: [
                    selection(0, rank)?,
                    selection(rank, state_size)?,
                    selection(rank + state_size, state_size)?,
                ],
                norms: None,
                steps: linear(&steps, head * width, width, Some(biases.get(head)?))?,
                decay: decays.get(head)?.t()?.contiguous()?,
                skip: skips.get(head)?,
            })
        };
        (0..heads).map(head).collect()
    }

    /// The scan of its channels `x [num_tokens, channels]`.
    fn forward(&self, x: &Tensor, state: &Tensor, step: &Step) -> Result<Tensor> {
        let mut selection = Linear::forward_each(self.selection.each_ref(), x)?;
        for (vector, norm) in selection.iter_mut().zip(self.norms.iter().flatten()) {
            *vector = norm.forward(vector)?;
        }
        let [steps, writes, reads] = selection;
        let steps = self.steps.forward(&steps)?;
        let vectors = Tensor::cat(&[writes, reads], 1)?;
        let channels = Channels { decay: &self.decay, skip: &self.skip };
        selective_scan(x, &steps, &vectors, channels, state, step)
    }
}
