//! Root mean square normalization.
//!
//! Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019. The squares of a row are
//! summed in sixteen lanes along the row, then in a fixed tree.

use std::mem::MaybeUninit;

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};

use super::cpu::{Kernel, LANES, Lanes, Level, load_tail};
use super::fresh::{Parts, filled};
use super::{pool, portable, storage};

/// Fewer elements than this stay on the calling thread.
const PARALLEL_FROM: usize = 1 << 15;
/// Rows of one chunk.
const CHUNK_ROWS: usize = 16;

/// `x / sqrt(mean(x^2) + eps) * weight` over the last dimension of `x [.., D]`; `weight [D]`.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    if !x.device().is_cpu() {
        return portable::rms_norm(x, weight, eps);
    }
    rms_norm_at(Level::current(), x, weight, eps)
}

fn rms_norm_at(level: Level, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    x.apply_op2_no_bwd(weight, &RmsNorm { level, eps })
}

struct RmsNorm {
    level: Level,
    eps: f32,
}

impl CustomOp2 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, width) = storage::rows_of(self.name(), layout)?;
        let x = storage::contiguous::<f32>(self.name(), x, layout)?;
        let weight = storage::contiguous::<f32>(self.name(), weight, weight_layout)?;
        check_weight(self.name(), weight, width)?;
        let eps = self.eps;
        let run = |out: &Parts<'_, MaybeUninit<f32>>| {
            for_each_row_range(rows, width, |first, count| {
                let range = first * width..(first + count) * width;
                // SAFETY: row ranges don't overlap.
                let out = unsafe { out.part(range.clone()) };
                self.level.run(NormRows { x: &x[range], weight, eps, out });
            });
        };
        // SAFETY: the row ranges cover all rows and `NormRows` writes every element of them.
        let out = unsafe { filled(rows * width, run) };
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

pub(super) fn check_weight(operation: &str, weight: &[f32], width: usize) -> Result<()> {
    if weight.len() != width || width == 0 {
        bail!("{operation}: {} weights for rows of {width}", weight.len());
    }
    Ok(())
}

/// Calls `work(first_row, count)` for ranges that cover all rows.
pub(super) fn for_each_row_range(rows: usize, width: usize, work: impl Fn(usize, usize) + Sync) {
    if rows * width < PARALLEL_FROM {
        work(0, rows);
        return;
    }
    pool::for_each_chunk(rows.div_ceil(CHUNK_ROWS), |chunk| {
        let first = chunk * CHUNK_ROWS;
        work(first, CHUNK_ROWS.min(rows - first));
    });
}

/// Normalizes rows as wide as `weight` and writes every element of `out`.
pub(super) struct NormRows<'a> {
    pub(super) x: &'a [f32],
    pub(super) weight: &'a [f32],
    pub(super) eps: f32,
    pub(super) out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for NormRows<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let width = self.weight.len();
        let (weight, weight_tail) = self.weight.as_chunks::<LANES>();
        for (x, out) in self.x.chunks_exact(width).zip(self.out.chunks_exact_mut(width)) {
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
            for ((x, weight), out) in x.iter().zip(weight).zip(out) {
                l.write(l.mul(l.mul(l.load(x), scales), l.load(weight)), out);
            }
            for ((x, weight), out) in x_tail.iter().zip(weight_tail).zip(out_tail) {
                out.write(x * scale * weight);
            }
        }
    }
}

#[cfg(test)]
mod tests;
