//! Normalization of rows on the CPU.
//!
//! The squares of a row are summed in sixteen lanes along the row, then in a fixed tree; a layer
//! norm's sums then take the elements behind the last whole sixteen one by one.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::slice;

use candle_core::{DType, Result, Tensor, bail};

use crate::cpu::{Element, Kernel, LANES, Lanes, Level, load_tail};
use crate::fresh::{ResultPart, Results};
use crate::pool;
use crate::storage::read;

const RMS_NORM: &str = "rms_norm";
const LAYER_NORM: &str = "layer_norm";

/// `rms_norm(x)`, added to a residual if there is one, by the kernels of a level: in bf16 if
/// `dtype` is, else in f32.
pub(super) fn rms_norm(
    level: Level,
    x: &Tensor,
    weight: &Tensor,
    eps: f32,
    residual: Option<&Tensor>,
    dtype: DType,
) -> Result<Tensor> {
    let own_weight = read(RMS_NORM, weight);
    let weight = own_weight.contiguous::<f32>()?;
    let residual = residual.map(|residual| read(RMS_NORM, residual));
    let residual = residual.as_ref().map(|reading| reading.contiguous::<f32>()).transpose()?;
    normalize(RMS_NORM, x, &[weight], dtype, |x, range, out| {
        let residual = residual.map(|residual| &residual[range]);
        match out {
            ResultPart::F32(out) => level.run(NormRows { x, weight, eps, residual, out }),
            ResultPart::Bf16(out) => level.run(NormRows { x, weight, eps, residual, out }),
        }
    })
}

/// `layer_norm(x)` by the kernels of a level: in bf16 if `dtype` is, else in f32.
pub(super) fn layer_norm(
    level: Level,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    eps: f32,
    dtype: DType,
) -> Result<Tensor> {
    let [weight, bias] = [weight, bias].map(|tensor| read(LAYER_NORM, tensor));
    let (weight, bias) = (weight.contiguous::<f32>()?, bias.contiguous::<f32>()?);
    normalize(LAYER_NORM, x, &[weight, bias], dtype, |x, _, out| match out {
        ResultPart::F32(out) => level.run(LayerNormRows { x, weight, bias, eps, out }),
        ResultPart::Bf16(out) => level.run(LayerNormRows { x, weight, bias, eps, out }),
    })
}

/// Calls `run` with rows of `x`, where they are, and what they must be written to.
fn normalize(
    operation: &'static str,
    x: &Tensor,
    weights: &[&[f32]],
    dtype: DType,
    run: impl Fn(&[f32], Range<usize>, ResultPart<'_>) + Sync,
) -> Result<Tensor> {
    let [outer @ .., width] = x.dims() else { bail!("{operation}: a scalar has no rows") };
    let (rows, width) = (outer.iter().product::<usize>(), *width);
    if let Some(weight) = weights.iter().find(|weight| width == 0 || weight.len() != width) {
        bail!("{operation}: {} weights for rows of {width}", weight.len());
    }
    let input = read(operation, x);
    let values = input.contiguous::<f32>()?;
    let mut results = Results::new(rows * width, dtype);
    let out = results.parts();
    pool::for_each_row_range(rows, width, |first, count| {
        let range = first * width..(first + count) * width;
        // SAFETY: row ranges don't overlap.
        let out = unsafe { out.part(range.clone()) };
        run(&values[range.clone()], range, out);
    });
    // SAFETY: the row ranges cover all rows, and both kernels write every element of theirs.
    unsafe { results.into_tensor(x.dims()) }
}

/// The RMS norm of rows as wide as `weight`; writes every element of `out`.
pub(crate) struct NormRows<'a, T = f32> {
    pub(crate) x: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) eps: f32,
    /// Added afterwards; as long as `x`.
    pub(crate) residual: Option<&'a [f32]>,
    pub(crate) out: &'a mut [MaybeUninit<T>],
}

impl<T: Element> Kernel for NormRows<'_, T> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let width = self.weight.len();
        let (weight, weight_tail) = self.weight.as_chunks::<LANES>();
        let rows = self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width));
        for (row, (x, out)) in rows.enumerate() {
            let (x, x_tail) = x.as_chunks::<LANES>();
            let (out, out_tail) = out.as_chunks_mut::<LANES>();
            let tail = load_tail(l, x_tail);
            let mut squares = l.splat(0.0);
            for x in x {
                let x = l.load(x);
                squares = l.mul_add(x, x, squares);
            }
            squares = l.mul_add(tail, tail, squares);
            #[expect(clippy::cast_precision_loss, reason = "widths are far below 2^24")]
            let mean = l.sum(squares) / width as f32;
            let scale = 1.0 / (mean + self.eps).sqrt();
            let scales = l.splat(scale);
            for ((x, weight), out) in x.iter().zip(weight).zip(&mut *out) {
                T::write(l, l.mul(l.mul(l.load(x), scales), l.load(weight)), out);
            }
            for ((x, weight), out) in x_tail.iter().zip(weight_tail).zip(&mut *out_tail) {
                T::write(l, l.splat(x * scale * weight), slice::from_mut(out));
            }
            let Some(residual) = self.residual else { continue };
            let residual = &residual[row * width..(row + 1) * width];
            let (residual, residual_tail) = residual.as_chunks::<LANES>();
            for ((x, weight), (residual, out)) in
                x.iter().zip(weight).zip(residual.iter().zip(&mut *out))
            {
                let x = l.mul(l.mul(l.load(x), scales), l.load(weight));
                T::write(l, l.add(l.load(residual), x), out);
            }
            let tails = x_tail.iter().zip(weight_tail).zip(residual_tail.iter().zip(out_tail));
            for ((x, weight), (residual, out)) in tails {
                T::write(l, l.splat(residual + x * scale * weight), slice::from_mut(out));
            }
        }
    }
}

/// The layer norm of rows as wide as `weight`; writes every element of `out`.
struct LayerNormRows<'a, T> {
    x: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
    out: &'a mut [MaybeUninit<T>],
}

impl<T: Element> Kernel for LayerNormRows<'_, T> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let width = self.weight.len();
        #[expect(clippy::cast_precision_loss, reason = "widths are far below 2^24")]
        let count = width as f32;
        let (weight, weight_tail) = self.weight.as_chunks::<LANES>();
        let (bias, bias_tail) = self.bias.as_chunks::<LANES>();
        for (x, out) in self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width)) {
            let (x, x_tail) = x.as_chunks::<LANES>();
            let (out, out_tail) = out.as_chunks_mut::<LANES>();
            let mut sums = l.splat(0.0);
            for x in x {
                sums = l.add(sums, l.load(x));
            }
            let mut sum = l.sum(sums);
            for x in x_tail {
                sum += x;
            }
            let mean = sum / count;
            let means = l.splat(mean);
            let mut squares = l.splat(0.0);
            for x in x {
                let x = l.sub(l.load(x), means);
                squares = l.mul_add(x, x, squares);
            }
            let mut square = l.sum(squares);
            for x in x_tail {
                square += (x - mean) * (x - mean);
            }
            let scale = 1.0 / (square / count + self.eps).sqrt();
            let scales = l.splat(scale);
            for (((x, weight), bias), out) in x.iter().zip(weight).zip(bias).zip(out) {
                let x = l.mul(l.sub(l.load(x), means), scales);
                T::write(l, l.mul_add(x, l.load(weight), l.load(bias)), out);
            }
            let tails = x_tail.iter().zip(weight_tail).zip(bias_tail).zip(out_tail);
            for (((x, weight), bias), out) in tails {
                let normed = (x - mean) * scale * weight + bias;
                T::write(l, l.splat(normed), slice::from_mut(out));
            }
        }
    }
}
