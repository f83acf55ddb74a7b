//! Normalization of rows on the CPU.
//!
//! The squares of a row are summed in sixteen lanes along the row, then in a fixed tree; a layer
//! norm's sums then take the elements behind the last whole sixteen one by one.

use std::mem::MaybeUninit;

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor, bail};

use crate::kernels::cpu::{Kernel, LANES, Lanes, Level, load_tail};
use crate::kernels::fresh::{Parts, filled};
use crate::kernels::{pool, storage};

/// `rms_norm(x)` by the kernels of a level.
pub(super) fn rms_norm(level: Level, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    x.apply_op2_no_bwd(weight, &RmsNorm { level, eps })
}

/// `residual + rms_norm(x)` by the kernels of a level.
pub(super) fn rms_norm_add(
    level: Level,
    x: &Tensor,
    weight: &Tensor,
    eps: f32,
    residual: &Tensor,
) -> Result<Tensor> {
    x.apply_op3_no_bwd(weight, residual, &RmsNorm { level, eps })
}

/// `layer_norm(x)` by the kernels of a level.
pub(super) fn layer_norm(
    level: Level,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    eps: f32,
) -> Result<Tensor> {
    x.apply_op3_no_bwd(weight, bias, &LayerNorm { level, eps })
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
            pool::for_each_row_range(rows, width, |first, count| {
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

fn check_weight(operation: &str, weight: &[f32], width: usize) -> Result<()> {
    if weight.len() != width || width == 0 {
        bail!("{operation}: {} weights for rows of {width}", weight.len());
    }
    Ok(())
}

/// The RMS norm of rows as wide as `weight`; writes every element of `out`.
pub(in crate::kernels) struct NormRows<'a> {
    pub(in crate::kernels) x: &'a [f32],
    pub(in crate::kernels) weight: &'a [f32],
    pub(in crate::kernels) eps: f32,
    /// Added afterwards; as long as `x`.
    pub(in crate::kernels) residual: Option<&'a [f32]>,
    pub(in crate::kernels) out: &'a mut [MaybeUninit<f32>],
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

struct LayerNorm {
    level: Level,
    eps: f32,
}

impl CustomOp3 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (rows, width) = storage::rows_of(self.name(), layout)?;
        let x = storage::contiguous::<f32>(self.name(), x, layout)?;
        let weight = storage::contiguous::<f32>(self.name(), weight, weight_layout)?;
        let bias = storage::contiguous::<f32>(self.name(), bias, bias_layout)?;
        check_weight(self.name(), weight, width)?;
        check_weight(self.name(), bias, width)?;
        let eps = self.eps;
        let run = |out: &Parts<'_, MaybeUninit<f32>>| {
            pool::for_each_row_range(rows, width, |first, count| {
                let range = first * width..(first + count) * width;
                // SAFETY: row ranges don't overlap.
                let out = unsafe { out.part(range.clone()) };
                self.level.run(LayerNormRows { x: &x[range], weight, bias, eps, out });
            });
        };
        // SAFETY: the row ranges cover all rows and `LayerNormRows` writes every element of them.
        let out = unsafe { filled(rows * width, run) };
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

/// Normalizes rows as wide as `weight` and writes every element of `out`.
struct LayerNormRows<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for LayerNormRows<'_> {
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
                l.write(l.mul_add(x, l.load(weight), l.load(bias)), out);
            }
            let tails = x_tail.iter().zip(weight_tail).zip(bias_tail).zip(out_tail);
            for (((x, weight), bias), out) in tails {
                out.write((x - mean) * scale * weight + bias);
            }
        }
    }
}
