//! A matrix memory with exponential gates: keys write values to it, each as strongly as its input gate says,
//! and queries read it, divided by what they would read of ones; the output is normalized and gated.
//!
//! Beck et al., "xLSTM: Extended Long Short-Term Memory", 2024, section 2.3, and "xLSTM 7B: A Recurrent LLM
//! for Fast and Efficient Inference", 2025, section 3. A memory is a selective state space whose time steps
//! are such that states fade by the forget gate, and whose inputs are divided by them. Gates are capped, so
//! that their exponentials need no state that keeps them small, and the epsilon of the division is left out:
//! there is a one in its place.

use candle_core::{DType, Result, Tensor, bail};

use crate::kernels::norm::layer_norm;
use crate::kernels::pointwise::{sigmoid, soft_cap};
use crate::kernels::recurrence::state_space::{Heads, state_space};
use crate::layers::forward::Step;
use crate::layers::linear::Linear;
use crate::weights::{Loaded, Weights};

/// Sizes and variant of a matrix memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixMemorySpec {
    /// Number of heads.
    pub heads: usize,
    /// Elements of a query and of a key.
    pub key_dim: usize,
    /// Elements of a value.
    pub value_dim: usize,
    /// The cap of `cap * tanh(gate / cap)`, at most [`MAX_CAP`](Self::MAX_CAP).
    pub gate_cap: f32,
    /// Epsilon of the norm of each head's output.
    pub norm_eps: f32,
}

impl MatrixMemorySpec {
    /// The largest cap of gates: sums of their exponentials are far from the largest number in f32.
    pub const MAX_CAP: f32 = 15.0;

    /// Number of elements of all heads' values.
    pub(super) fn inner(&self) -> usize {
        self.heads * self.value_dim
    }

    /// Number of elements of the state: of each head a matrix, and what its keys write of ones.
    pub(super) fn states(&self) -> Vec<usize> {
        vec![self.heads * self.key_dim * (self.value_dim + 1)]
    }
}

/// The weights of a matrix memory.
#[derive(Debug)]
pub(super) struct MatrixMemory {
    spec: MatrixMemorySpec,
    /// Projections to queries, keys, values and the gates of outputs, inputs and forgetting.
    inputs: [Linear; 6],
    /// `[heads]` of minus ones, and of zeros.
    decay: Tensor,
    zero: Tensor,
    /// `[value_dim]` of ones, and of zeros.
    plain: [Tensor; 2],
    /// `[heads * value_dim]`
    scale: Tensor,
}

impl MatrixMemory {
    pub(super) fn load(weights: &Weights, hidden: usize, spec: MatrixMemorySpec) -> Loaded<Self> {
        let MatrixMemorySpec { heads, key_dim, value_dim, .. } = spec;
        let (device, inner) = (weights.device(), spec.inner());
        let input =
            |name: &str, outputs, bias| Linear::load(&weights.scope(name), hidden, outputs, bias);
        let zero = Tensor::zeros(heads, DType::F32, device)?;
        let ones = Tensor::ones(value_dim, DType::F32, device)?;
        Ok(Self {
            inputs: [
                input("q", heads * key_dim, false)?,
                input("k", heads * key_dim, false)?,
                input("v", inner, false)?,
                input("ogate_preact", inner, false)?,
                input("igate_preact", heads, true)?,
                input("fgate_preact", heads, true)?,
            ],
            decay: (&zero - 1.0)?,
            zero,
            plain: [ones.clone(), ones.zeros_like()?],
            scale: weights.dense("multihead_norm.weight", &[inner], DType::F32)?,
            spec,
        })
    }

    pub(super) fn forward(&self, x: &Tensor, states: &[Tensor], step: &Step) -> Result<Tensor> {
        let [state] = states else { bail!("{} states, expected 1", states.len()) };
        let MatrixMemorySpec { heads, key_dim, value_dim, gate_cap, norm_eps } = self.spec;
        let [query, key, value, output, input, forget] =
            Linear::forward_each(self.inputs.each_ref(), x)?;
        let rows = x.dim(0)?;
        let times = soft_cap(gate_cap, &forget)?.neg()?;
        let written = (soft_cap(gate_cap, &input)?.exp()? / softplus(&times)?)?.unsqueeze(2)?;
        let value = value.reshape((rows, heads, value_dim))?.broadcast_mul(&written)?;
        let inputs = Tensor::cat(&[value, written], 2)?.reshape((rows, ()))?;
        #[expect(clippy::cast_precision_loss, reason = "sizes of heads are below 2^24")]
        let query = (query / (key_dim as f64).sqrt())?;
        let sizes = Heads {
            decay: &self.decay,
            skip: &self.zero,
            step_bias: &self.zero,
            step_limits: [0.0, f32::INFINITY],
            head_dim: value_dim + 1,
            state_size: key_dim,
            groups: heads,
        };
        let all = Tensor::cat(&[inputs, key, query], 1)?;
        let read = state_space(&all, &times, sizes, state, step)?;
        let read = read.reshape((rows, heads, value_dim + 1))?;
        // At least one.
        let of_ones = ((read.narrow(2, value_dim, 1)?.abs()? - 1.0)?.relu()? + 1.0)?;
        let read = read.narrow(2, 0, value_dim)?.broadcast_div(&of_ones)?.contiguous()?;
        let [ones, zeros] = &self.plain;
        let normed = layer_norm(&read, ones, zeros, norm_eps)?.reshape((rows, ()))?;
        sigmoid(&output)? * normed.broadcast_mul(&self.scale)?
    }
}

/// `ln(1 + e^x)`, also where that is hardly more than zero.
fn softplus(x: &Tensor) -> Result<Tensor> {
    // `pointwise::softplus` loses digits there. Of z = e^-|x|, ln(1 + z) is z times the quotient of ln(w) and w - 1 for w near 1 + z.
    let small = x.abs()?.neg()?.exp()?;
    let near = (&small + 1.0)?;
    let quotient = (near.log()? / (near - 1.0)?)?;
    x.relu()? + (small * quotient)?
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn small_numbers_keep_their_digits() {
        let given = [-15.0f32, -8.0, -0.5, 0.0, 0.5, 15.0];
        let ours = softplus(&Tensor::new(&given, &Device::Cpu).unwrap()).unwrap();
        for (x, ours) in given.into_iter().zip(ours.to_vec1::<f32>().unwrap()) {
            let exact = f64::from(x).exp().ln_1p();
            assert!((f64::from(ours) - exact).abs() < 1e-6 * exact, "{x}: {ours} and {exact}");
        }
    }
}
