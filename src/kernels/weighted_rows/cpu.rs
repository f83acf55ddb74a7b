//! Weighted sums of rows on the CPU.

use std::mem::MaybeUninit;

use candle_core::{Result, Tensor};

use super::args::WeightedRow;
use crate::cpu::{Kernel, LANES, Lanes, Level, load_tail};
use crate::fresh::{Parts, filled};
use crate::pool;
use crate::storage::read;

/// Weighted sums by the kernels of a level, with checked arguments.
pub(super) fn weighted_rows(
    level: Level,
    x: &Tensor,
    weighted: &[WeightedRow],
    count: usize,
    residual: &Tensor,
) -> Result<Tensor> {
    let (sums, width) = residual.dims2()?;
    let [x, before] = [x, residual].map(|tensor| read("weighted_rows", tensor));
    let (x, before) = (x.contiguous::<f32>()?, before.contiguous::<f32>()?);
    let run = |out: &Parts<'_, MaybeUninit<f32>>| {
        pool::for_each_row_range(sums, width, |first, rows| {
            let range = first * width..(first + rows) * width;
            let residual = &before[range.clone()];
            // SAFETY: row ranges don't overlap.
            let out = unsafe { out.part(range) };
            let weighted = &weighted[first * count..(first + rows) * count];
            level.run(Sums { x, weighted, count, width, residual, out });
        });
    };
    // SAFETY: the row ranges cover all sums and `Sums` writes every element of them.
    let out = unsafe { filled(sums * width, run) };
    Tensor::from_vec(out, (sums, width), residual.device())
}

/// Writes every element of `out`.
struct Sums<'a> {
    x: &'a [f32],
    weighted: &'a [WeightedRow],
    count: usize,
    width: usize,
    /// As long as `out`.
    residual: &'a [f32],
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Sums<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Self { x, width, .. } = self;
        let sums = self.residual.chunks_exact(width).zip(self.out.chunks_exact_mut(width));
        for (weighted, (residual, out)) in self.weighted.chunks_exact(self.count).zip(sums) {
            let (residual, residual_tail) = residual.as_chunks::<LANES>();
            let (out, out_tail) = out.as_chunks_mut::<LANES>();
            let whole = out.len() * LANES;
            for (i, (residual, out)) in residual.iter().zip(out).enumerate() {
                let mut sum = l.load(residual);
                for one in weighted {
                    let at = one.row * width + i * LANES;
                    let row = x[at..at + LANES].as_chunks().0;
                    sum = l.mul_add(l.load(&row[0]), l.splat(one.weight), sum);
                }
                l.write(sum, out);
            }
            let mut sum = load_tail(l, residual_tail);
            for one in weighted {
                let row = &x[one.row * width + whole..(one.row + 1) * width];
                sum = l.mul_add(load_tail(l, row), l.splat(one.weight), sum);
            }
            let mut tail = [0.0; LANES];
            l.store(sum, &mut tail);
            for (sum, out) in tail.into_iter().zip(out_tail) {
                out.write(sum);
            }
        }
    }
}
