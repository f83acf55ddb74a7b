//! Weighted sums of rows on the CPU.

use std::mem::MaybeUninit;

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};

use super::args::WeightedRow;
use crate::kernels::cpu::{Kernel, LANES, Lanes, Level, load_tail};
use crate::kernels::fresh::{Parts, filled};
use crate::kernels::{pool, storage};

/// Weighted sums by the kernels of a level, with checked arguments.
pub(super) fn weighted_rows(
    level: Level,
    x: &Tensor,
    weighted: &[WeightedRow],
    count: usize,
    residual: &Tensor,
) -> Result<Tensor> {
    x.apply_op2_no_bwd(residual, &WeightedRows { level, weighted, count })
}

struct WeightedRows<'a> {
    level: Level,
    weighted: &'a [WeightedRow],
    count: usize,
}

impl CustomOp2 for WeightedRows<'_> {
    fn name(&self) -> &'static str {
        "weighted_rows"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        residual: &CpuStorage,
        residual_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (_, width) = layout.shape().dims2()?;
        let x = storage::contiguous::<f32>(self.name(), x, layout)?;
        let residual = storage::contiguous::<f32>(self.name(), residual, residual_layout)?;
        let (count, sums) = (self.count, self.weighted.len() / self.count);
        let run = |out: &Parts<'_, MaybeUninit<f32>>| {
            pool::for_each_row_range(sums, width, |first, rows| {
                let range = first * width..(first + rows) * width;
                let residual = &residual[range.clone()];
                // SAFETY: row ranges don't overlap.
                let out = unsafe { out.part(range) };
                let weighted = &self.weighted[first * count..(first + rows) * count];
                self.level.run(Sums { x, weighted, count, width, residual, out });
            });
        };
        // SAFETY: the row ranges cover all sums and `Sums` writes every element of them.
        let out = unsafe { filled(sums * width, run) };
        Ok((CpuStorage::F32(out), Shape::from((sums, width))))
    }
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
