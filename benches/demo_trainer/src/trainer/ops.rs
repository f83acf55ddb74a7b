//! The elementwise parts of the network, forward and backward, on plain slices.
//! Refuses to know layers, parameters and matrix products.
//!
//! Written out instead of left to candle's graph: that starts every gradient as zeros and adds to it, two
//! passes over memory for each operation, and its own fused norms and softmax cut the gradient silently.

use candle_core::{DType, Result, Storage, Tensor};
use std::ops::Deref;

/// Added to the mean square under the root.
pub(crate) const EPSILON: f32 = 1e-6;

/// The numbers of a contiguous f32 tensor on the CPU.
pub(crate) struct Floats<Guard> {
    storage: Guard,
    start: usize,
    length: usize,
}

pub(crate) fn floats(tensor: &Tensor) -> Floats<impl Deref<Target = Storage> + '_> {
    assert!(tensor.is_contiguous() && tensor.dtype() == DType::F32);
    let (storage, layout) = tensor.storage_and_layout();
    let start = layout.start_offset();
    Floats { storage, start, length: tensor.elem_count() }
}

impl<Guard: Deref<Target = Storage>> Deref for Floats<Guard> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        let Storage::Cpu(storage) = &*self.storage else { panic!("the trainer runs on the CPU") };
        let all = storage.as_slice::<f32>().expect("checked when it was made");
        &all[self.start..self.start + self.length]
    }
}

pub(crate) fn matrix(data: Vec<f32>, columns: usize) -> Result<Tensor> {
    let rows = data.len() / columns;
    Tensor::from_vec(data, (rows, columns), &candle_core::Device::Cpu)
}

/// The sum of products, in sixteen lanes so that it can be done in vector registers.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; 16];
    let (a, b) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a.zip(b) {
        for lane in 0..16 {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    lanes.iter().sum::<f32>() + rest
}

fn inverse_rms(x: &[f32]) -> f32 {
    1.0 / (dot(x, x) / x.len() as f32 + EPSILON).sqrt()
}

/// Root mean square norm of each row (Zhang and Sennrich 2019).
pub(crate) fn rms_norm(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let (input, weight) = (floats(x), floats(weight));
    let width = weight.len();
    let mut output = Vec::with_capacity(input.len());
    for row in input.chunks_exact(width) {
        let scale = inverse_rms(row);
        output.extend(row.iter().zip(weight.iter()).map(|(x, w)| x * scale * w));
    }
    matrix(output, width)
}

/// Gradient of the input; that of the weight is added to `grad_weight`.
pub(crate) fn rms_norm_back(
    x: &Tensor,
    weight: &Tensor,
    grad: &Tensor,
    grad_weight: &mut [f32],
) -> Result<Tensor> {
    let (input, weight, grad) = (floats(x), floats(weight), floats(grad));
    let width = weight.len();
    let mut output = vec![0f32; input.len()];
    let rows = input.chunks_exact(width).zip(grad.chunks_exact(width));
    for ((x, g), out) in rows.zip(output.chunks_exact_mut(width)) {
        norm_row_back(x, &weight, g, out, grad_weight);
    }
    matrix(output, width)
}

/// One row of `rms_norm`, in place.
pub(crate) fn norm_row(x: &mut [f32], weight: &[f32]) {
    let scale = inverse_rms(x);
    for (x, w) in x.iter_mut().zip(weight) {
        *x *= scale * w;
    }
}

pub(crate) fn norm_row_back(
    x: &[f32],
    weight: &[f32],
    grad: &[f32],
    out: &mut [f32],
    grad_weight: &mut [f32],
) {
    let scale = inverse_rms(x);
    for (((o, g), w), (x, gw)) in
        out.iter_mut().zip(grad).zip(weight).zip(x.iter().zip(grad_weight.iter_mut()))
    {
        *gw += g * x * scale;
        *o = g * w;
    }
    let pull = dot(out, x) * scale * scale / x.len() as f32;
    for (o, x) in out.iter_mut().zip(x) {
        *o = scale * (*o - x * pull);
    }
}

/// `silu(gate) * up`, both halves of each row.
pub(crate) fn swiglu(gate_up: &Tensor) -> Result<Tensor> {
    let width = gate_up.dim(1)? / 2;
    let input = floats(gate_up);
    let mut output = Vec::with_capacity(input.len() / 2);
    for row in input.chunks_exact(2 * width) {
        let (gate, up) = row.split_at(width);
        output.extend(gate.iter().zip(up).map(|(g, u)| g * sigmoid(*g) * u));
    }
    matrix(output, width)
}

pub(crate) fn swiglu_back(gate_up: &Tensor, grad: &Tensor) -> Result<Tensor> {
    let width = grad.dim(1)?;
    let (input, grad) = (floats(gate_up), floats(grad));
    let mut output = vec![0f32; input.len()];
    let rows = input.chunks_exact(2 * width).zip(grad.chunks_exact(width));
    for ((row, grad), out) in rows.zip(output.chunks_exact_mut(2 * width)) {
        let (gate, up) = row.split_at(width);
        let (out_gate, out_up) = out.split_at_mut(width);
        for index in 0..width {
            let (g, u, d) = (gate[index], up[index], grad[index]);
            let s = sigmoid(g);
            out_up[index] = d * g * s;
            out_gate[index] = d * u * s * (1.0 + g * (1.0 - s));
        }
    }
    matrix(output, 2 * width)
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// e to the x to seven digits, free of branches so that loops over it are done in vector registers.
pub(crate) fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 87.0);
    let power = (x * std::f32::consts::LOG2_E + 12_582_912.0) - 12_582_912.0;
    let r = x - power * 0.693_359_4 + power * 2.121_944_4e-4;
    let series = 1.987_569_1e-4_f32;
    let series = series * r + 1.398_199_9e-3;
    let series = series * r + 8.333_452e-3;
    let series = series * r + 4.166_579_6e-2;
    let series = series * r + 1.666_666_5e-1;
    let series = series * r + 0.5;
    let value = series * r * r + r + 1.0;
    value * f32::from_bits(((power as i32 + 127) << 23) as u32)
}

/// The summed loss of each row's target, and the gradient of that sum times `scale`.
pub(crate) fn cross_entropy(logits: &Tensor, targets: &[u32], scale: f32) -> Result<(f64, Tensor)> {
    let width = logits.dim(1)?;
    let logits = floats(logits);
    let mut grad = vec![0f32; logits.len()];
    let mut loss = 0f64;
    let rows = logits.chunks_exact(width).zip(grad.chunks_exact_mut(width));
    for ((row, grad), &target) in rows.zip(targets) {
        let target = target as usize;
        let sum = softmax_terms(row, grad);
        loss += f64::from(sum.ln() - (row[target] - largest(row)));
        for g in grad.iter_mut() {
            *g *= scale / sum;
        }
        grad[target] -= scale;
    }
    Ok((loss, matrix(grad, width)?))
}

/// `exp(x - max)` into `out`; gives their sum.
pub(crate) fn softmax_terms(row: &[f32], out: &mut [f32]) -> f32 {
    let top = largest(row);
    for (o, x) in out.iter_mut().zip(row) {
        *o = exp(x - top);
    }
    let mut lanes = [0f32; 16];
    let chunks = out.chunks_exact(16);
    let rest: f32 = chunks.remainder().iter().sum();
    for chunk in chunks {
        for lane in 0..16 {
            lanes[lane] += chunk[lane];
        }
    }
    lanes.iter().sum::<f32>() + rest
}

fn largest(row: &[f32]) -> f32 {
    row.iter().copied().fold(f32::NEG_INFINITY, |a, b| if a > b { a } else { b })
}
