//! Layer normalization.
//!
//! Ba, Kiros and Hinton, "Layer Normalization", 2016. A row's sum, and then the squares of what is
//! left without the mean, are added in sixteen lanes along the row, then in a fixed tree, then the
//! elements behind the last whole sixteen.

use std::mem::MaybeUninit;

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};

use super::backend::cpu_level;
use super::cpu::{Kernel, LANES, Lanes, Level};
use super::fresh::{Parts, filled};
use super::rms_norm::{check_weight, for_each_row_range};
use super::{cuda, portable, storage};

/// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last dimension of `x [.., D]`;
/// `weight [D]`, `bias [D]`.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, eps: f32) -> Result<Tensor> {
    if cuda::on(x.device()) && weight.dims().len() == 1 {
        return cuda::norms::layer_norm(x, weight, bias, eps);
    }
    if portable::on(x.device()) {
        return portable::layer_norm(x, weight, bias, eps);
    }
    layer_norm_at(cpu_level(), x, weight, bias, eps)
}

fn layer_norm_at(
    level: Level,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    eps: f32,
) -> Result<Tensor> {
    x.apply_op3_no_bwd(weight, bias, &LayerNorm { level, eps })
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
            for_each_row_range(rows, width, |first, count| {
                let range = first * width..(first + count) * width;
                // SAFETY: row ranges don't overlap.
                let out = unsafe { out.part(range.clone()) };
                self.level.run(NormRows { x: &x[range], weight, bias, eps, out });
            });
        };
        // SAFETY: the row ranges cover all rows and `NormRows` writes every element of them.
        let out = unsafe { filled(rows * width, run) };
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

/// Normalizes rows as wide as `weight` and writes every element of `out`.
struct NormRows<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for NormRows<'_> {
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

#[cfg(test)]
mod tests {
    use super::super::random::{Random, assert_close, bits};
    use super::*;

    #[test]
    fn equals_the_plain_operations() {
        let mut random = Random::new(1);
        for (rows, width) in [(1, 1), (3, 15), (2, 16), (5, 33), (40, 900)] {
            let x = random.tensor((rows, width));
            let (weight, bias) = (random.tensor(width), random.tensor(width));
            let norm = portable::layer_norm(&x, &weight, &bias, 1e-5).unwrap();
            for level in Level::available() {
                let ours = layer_norm_at(level, &x, &weight, &bias, 1e-5).unwrap();
                assert_close(&ours, &norm, 1e-5);
            }
        }
    }

    #[test]
    fn a_row_is_the_same_alone_and_in_a_batch() {
        let mut random = Random::new(2);
        let (x, weight, bias) = (random.tensor((90, 500)), random.tensor(500), random.tensor(500));
        for level in Level::available() {
            let all = layer_norm_at(level, &x, &weight, &bias, 1e-6).unwrap();
            let row = x.narrow(0, 77, 1).unwrap();
            let alone = layer_norm_at(level, &row, &weight, &bias, 1e-6).unwrap();
            assert_eq!(bits(&alone), bits(&all.narrow(0, 77, 1).unwrap()));
        }
    }

    #[test]
    fn wrong_widths_are_errors() {
        let mut random = Random::new(3);
        let x = random.tensor((2, 8));
        let (eight, seven) = (random.tensor(8), random.tensor(7));
        assert!(layer_norm(&x, &seven, &eight, 1e-6).is_err());
        assert!(layer_norm(&x, &eight, &seven, 1e-6).is_err());
    }
}
