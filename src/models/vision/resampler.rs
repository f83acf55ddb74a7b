//! What makes as many tokens of every picture: queries that were learned, each of which sees all patches.
//!
//! The cross-attention of Qwen-VL (Bai et al., 2023), with positions that are computed for the picture's own
//! grid, as MiniCPM-V has it (Yao et al., "MiniCPM-V", 2024).

use candle_core::{D, DType, Device, Result, Tensor};

use crate::layers::norm::{Norm, NormSpec};
use crate::weights::{Loaded, Weights};

/// A loaded resampler.
#[derive(Debug)]
pub(super) struct Resampler {
    /// `[heads, queries, head_dim]`, projected and scaled.
    queries: Tensor,
    /// `[width, width]` and `[width]`: from inputs to keys, and to values.
    key: [Tensor; 2],
    value: [Tensor; 2],
    /// The same from what heads find to outputs.
    output: [Tensor; 2],
    heads: usize,
}

impl Resampler {
    /// Loads so many `queries` and the attention of `width` elements, whose heads divide them.
    pub(super) fn load(
        weights: &Weights,
        [queries, heads]: [usize; 2],
        norm: NormSpec,
        width: usize,
    ) -> Loaded<Self> {
        let attention = weights.scope("attn");
        let stacked = attention.dense("in_proj_weight", &[3 * width, width], DType::F32)?;
        let biases = attention.dense("in_proj_bias", &[3 * width], DType::F32)?;
        let third = |index: usize| -> Loaded<[Tensor; 2]> {
            let matrix = stacked.narrow(0, index * width, width)?.t()?.contiguous()?;
            Ok([matrix, biases.narrow(0, index * width, width)?])
        };
        let learned = weights.dense("query", &[queries, width], DType::F32)?.contiguous()?;
        let learned = Norm::load(&weights.scope("ln_q"), width, norm)?.forward(&learned)?;
        #[expect(clippy::cast_precision_loss, reason = "heads are far below 2^24")]
        let scale = 1.0 / ((width / heads) as f64).sqrt();
        let projected = (affine(&learned, &third(0)?)? * scale)?;
        let output = attention.scope("out_proj");
        let matrix = output.dense("weight", &[width, width], DType::F32)?;
        Ok(Self {
            queries: of_heads(&projected, heads)?,
            key: third(1)?,
            value: third(2)?,
            output: [matrix.t()?.contiguous()?, output.dense("bias", &[width], DType::F32)?],
            heads,
        })
    }

    /// `x [rows * columns, width]` of a grid of patches, in rows: `[queries, width]`.
    pub(super) fn forward(&self, x: &Tensor, size: [usize; 2]) -> Result<Tensor> {
        let placed = (x + sinusoids(size, x.dim(1)?, x.device())?)?;
        let keys = of_heads(&affine(&placed, &self.key)?, self.heads)?;
        let values = of_heads(&affine(x, &self.value)?, self.heads)?;
        // [heads, queries, patches]
        let scores = self.queries.matmul(&keys.t()?)?;
        let found = softmax(&scores)?.matmul(&values)?.transpose(0, 1)?.flatten_from(1)?;
        affine(&found.contiguous()?, &self.output)
    }
}

/// The probabilities along the last dimension of which `x` has the logits.
pub(super) fn softmax(x: &Tensor) -> Result<Tensor> {
    let powers = x.broadcast_sub(&x.max_keepdim(D::Minus1)?)?.exp()?;
    powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)
}

fn affine(x: &Tensor, [matrix, bias]: &[Tensor; 2]) -> Result<Tensor> {
    x.matmul(matrix)?.broadcast_add(bias)
}

/// `[rows, width]` to `[heads, rows, width / heads]`.
fn of_heads(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    x.reshape((rows, heads, width / heads))?.transpose(0, 1)?.contiguous()
}

/// Sines and cosines of columns, then of rows, each a quarter of the `width` elements: `[rows * columns,
/// width]` in f32, as the reference computes them.
#[expect(clippy::cast_precision_loss, reason = "sides are far below 2^24")]
pub(super) fn sinusoids(
    [rows, columns]: [usize; 2],
    width: usize,
    device: &Device,
) -> Result<Tensor> {
    let quarter = width / 4;
    let frequency = |i: usize| 1.0 / 10_000f32.powf(i as f32 / quarter as f32);
    let frequencies: Vec<f32> = (0..quarter).map(frequency).collect();
    let of_axis = |place: usize| {
        let angles = frequencies.iter().map(move |frequency| place as f32 * frequency);
        angles.clone().map(f32::sin).chain(angles.map(f32::cos))
    };
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| [column, row]));
    let numbers: Vec<f32> = places.flat_map(|axes| axes.into_iter().flat_map(of_axis)).collect();
    Tensor::from_vec(numbers, (rows * columns, width), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_before_rows() {
        let table = sinusoids([1, 2], 8, &Device::Cpu).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(table[0], [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
        let angles = [1.0f32, 0.01];
        let expected = [angles.map(f32::sin), angles.map(f32::cos)].concat();
        assert_eq!(table[1][..4], expected);
        assert_eq!(table[1][4..], table[0][4..]);
    }
}
