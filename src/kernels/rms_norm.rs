//! Root mean square normalization.
//!
//! Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019. The squares of a row are
//! summed in sixteen lanes along the row, then in a fixed tree.

use std::mem::MaybeUninit;

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor, bail};

use super::backend::cpu_level;
use super::cpu::{Kernel, LANES, Lanes, Level, load_tail};
use super::fresh::{Parts, filled};
use super::{cuda, pool, portable, storage};

/// Fewer elements than this stay on the calling thread.
const PARALLEL_FROM: usize = 1 << 15;
/// Rows of one chunk.
const CHUNK_ROWS: usize = 16;

/// `x / sqrt(mean(x^2) + eps) * weight` over the last dimension of `x [.., D]`; `weight [D]`.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    if cuda::on(x.device()) {
        return cuda::norms::rms_norm(x, weight, eps, None);
    }
    if portable::on(x.device()) {
        return portable::rms_norm(x, weight, eps);
    }
    rms_norm_at(cpu_level(), x, weight, eps)
}

fn rms_norm_at(level: Level, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    x.apply_op2_no_bwd(weight, &RmsNorm { level, eps })
}

/// `residual + rms_norm(x)`, both `[.., D]`.
pub fn rms_norm_add(x: &Tensor, weight: &Tensor, eps: f32, residual: &Tensor) -> Result<Tensor> {
    if x.dims() != residual.dims() {
        bail!("rms_norm_add: {:?} and {:?} differ", x.dims(), residual.dims());
    }
    if cuda::on(x.device()) {
        return cuda::norms::rms_norm(x, weight, eps, Some(residual));
    }
    if portable::on(x.device()) {
        return residual + portable::rms_norm(x, weight, eps)?;
    }
    rms_norm_add_at(cpu_level(), x, weight, eps, residual)
}

fn rms_norm_add_at(
    level: Level,
    x: &Tensor,
    weight: &Tensor,
    eps: f32,
    residual: &Tensor,
) -> Result<Tensor> {
    x.apply_op3_no_bwd(weight, residual, &RmsNorm { level, eps })
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
        let weight = storage::contiguous::<f32>(CustomOp2::name(self), weight, weight_layout)?;
        self.run(x, layout, weight, None)
    }
}

impl CustomOp3 for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm_add"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        residual: &CpuStorage,
        residual_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let name = CustomOp3::name(self);
        let weight = storage::contiguous::<f32>(name, weight, weight_layout)?;
        let residual = storage::contiguous::<f32>(name, residual, residual_layout)?;
        self.run(x, layout, weight, Some(residual))
    }
}

impl RmsNorm {
    /// `residual`, if there is one, is as long as `x`.
    fn run(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        weight: &[f32],
        residual: Option<&[f32]>,
    ) -> Result<(CpuStorage, Shape)> {
        let name = "rms_norm";
        let (rows, width) = storage::rows_of(name, layout)?;
        let x = storage::contiguous::<f32>(name, x, layout)?;
        check_weight(name, weight, width)?;
        let eps = self.eps;
        let run = |out: &Parts<'_, MaybeUninit<f32>>| {
            for_each_row_range(rows, width, |first, count| {
                let range = first * width..(first + count) * width;
                // SAFETY: row ranges don't overlap.
                let out = unsafe { out.part(range.clone()) };
                let residual = residual.map(|residual| &residual[range.clone()]);
                self.level.run(NormRows { x: &x[range], weight, eps, residual, out });
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
    /// Added afterwards; as long as `x`.
    pub(super) residual: Option<&'a [f32]>,
    pub(super) out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for NormRows<'_> {
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
                l.write(l.mul(l.mul(l.load(x), scales), l.load(weight)), out);
            }
            for ((x, weight), out) in x_tail.iter().zip(weight_tail).zip(&mut *out_tail) {
                out.write(x * scale * weight);
            }
            let Some(residual) = self.residual else { continue };
            let residual = &residual[row * width..(row + 1) * width];
            let (residual, residual_tail) = residual.as_chunks::<LANES>();
            for ((x, weight), (residual, out)) in
                x.iter().zip(weight).zip(residual.iter().zip(&mut *out))
            {
                let x = l.mul(l.mul(l.load(x), scales), l.load(weight));
                l.write(l.add(l.load(residual), x), out);
            }
            let tails = x_tail.iter().zip(weight_tail).zip(residual_tail.iter().zip(out_tail));
            for ((x, weight), (residual, out)) in tails {
                out.write(residual + x * scale * weight);
            }
        }
    }
}

#[cfg(test)]
mod tests;
