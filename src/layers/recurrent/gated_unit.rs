//! A real-gated linear recurrent unit after a short convolution, whose output is gated: how much of a
//! channel fades, and how much of it is taken in, are gates of the token.
//!
//! De et al., "Griffin: Mixing Gated Linear Recurrences with Local Attention for Efficient Language
//! Models", 2024, section 2.4.

use candle_core::{DType, Result, Tensor, bail};

use super::short_conv::ConvTaps;
use crate::kernels::pointwise::{Activation, gated_pairs, sigmoid, softplus};
use crate::kernels::recurrence::fading_sum::fading_sum;
use crate::kernels::recurrence::short_conv::short_conv;
use crate::layers::forward::Step;
use crate::layers::linear::{Linear, Matrix};
use crate::weights::{Loaded, WeightError, Weights};

/// Factor of the logarithm of a decay.
const RATE: f64 = -8.0;

/// Sizes and variant of a real-gated linear recurrent unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedUnitSpec {
    /// Number of channels.
    pub channels: usize,
    /// Number of blocks of channels whose gates don't depend on other channels.
    pub blocks: usize,
    /// Number of tokens that the convolution sees.
    pub taps: usize,
    /// Activation of the output's gate.
    pub activation: Activation,
}

impl GatedUnitSpec {
    /// Number of elements of the states of the convolution and of the channels.
    pub(super) fn states(&self) -> Vec<usize> {
        vec![(self.taps - 1) * self.channels, self.channels]
    }
}

/// The weights of a real-gated linear recurrent unit.
#[derive(Debug)]
pub(super) struct GatedUnit {
    /// Projections to the channels and to their gates.
    inputs: [Linear; 2],
    taps: ConvTaps,
    /// Of each block, from channels to how much is taken in, and to how much fades.
    gates: Vec<[Linear; 2]>,
    /// `[channels]`: the logarithm of a decay where all fades that can.
    decay: Tensor,
    activation: Activation,
}

impl GatedUnit {
    pub(super) fn load(weights: &Weights, hidden: usize, spec: GatedUnitSpec) -> Loaded<Self> {
        let GatedUnitSpec { channels, blocks, taps, activation } = spec;
        let input = |name: &str| Linear::load(&weights.scope(name), hidden, channels, true);
        let unit = weights.scope("rg_lru");
        let gates = |name: &str| load_blocks(&unit, name, blocks, channels / blocks);
        let [taken, fading] = [gates("input_gate")?, gates("recurrent_gate")?];
        let decay = unit.dense("recurrent_param", &[channels], DType::F32)?;
        Ok(Self {
            inputs: [input("linear_x")?, input("linear_y")?],
            taps: ConvTaps::load(&weights.scope("conv_1d"), channels, taps, true)?,
            gates: taken.into_iter().zip(fading).map(|(taken, fading)| [taken, fading]).collect(),
            decay: (softplus(&decay)? * RATE)?,
            activation,
        })
    }

    pub(super) fn forward(&self, x: &Tensor, states: &[Tensor], step: &Step) -> Result<Tensor> {
        let [last, state] = states else { bail!("{} states, expected 2", states.len()) };
        let [x, gate] = Linear::forward_each(self.inputs.each_ref(), x)?;
        let x = short_conv(&x, self.taps.taps(), last, step)?;
        let [taken, fading] = self.gates(&x)?;
        let decay = fading.broadcast_mul(&self.decay)?;
        // What is taken in makes up for what fades; the first token is all there is.
        let share = (decay.affine(2.0, 0.0)?.exp()?.neg()? + 1.0)?.sqrt()?;
        let first = |position: &u32| if *position == 0 { 1.0f32 } else { 0.0 };
        let first: Vec<f32> = step.positions.iter().map(first).collect();
        let first = Tensor::from_vec(first, (step.positions.len(), 1), x.device())?;
        let share = share.broadcast_mul(&first.affine(-1.0, 1.0)?)?.broadcast_add(&first)?;
        let sums = fading_sum(&((x * taken)? * share)?, &decay.exp()?, state, step)?;
        gated_pairs(self.activation.into(), &gate, &sums)
    }

    /// How much of each channel is taken in, and how much of it fades, `[num_tokens, channels]` each.
    fn gates(&self, x: &Tensor) -> Result<[Tensor; 2]> {
        let width = x.dim(1)? / self.gates.len();
        let (mut taken, mut fading) = (Vec::new(), Vec::new());
        for (block, layers) in self.gates.iter().enumerate() {
            let own = x.narrow(1, block * width, width)?.contiguous()?;
            let [one, other] = Linear::forward_each(layers.each_ref(), &own)?;
            taken.push(one);
            fading.push(other);
        }
        Ok([sigmoid(&Tensor::cat(&taken, 1)?)?, sigmoid(&Tensor::cat(&fading, 1)?)?])
    }
}

/// Loads the layers of blocks of `width` channels: `NAME_weight [blocks, width, width]`, inputs first, and
/// `NAME_bias [blocks, width]`.
fn load_blocks(weights: &Weights, name: &str, blocks: usize, width: usize) -> Loaded<Vec<Linear>> {
    let all = weights.stored(&format!("{name}_weight"), &[blocks, width, width])?;
    let biases = weights.dense(&format!("{name}_bias"), &[blocks, width], DType::F32)?;
    let one = |block: usize| {
        let rows = block * width..(block + 1) * width;
        let matrix = all.rows(std::slice::from_ref(&rows))?.transposed()?;
        let matrix = Matrix::from_stored(weights, &matrix, weights.rounding())?;
        Ok::<_, WeightError>(Linear::from_matrix(matrix, Some(biases.get(block)?))?)
    };
    (0..blocks).map(one).collect()
}
