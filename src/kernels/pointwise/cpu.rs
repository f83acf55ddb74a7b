//! Elementwise operations of one tensor on the CPU.

use std::mem::MaybeUninit;
use std::ops::Range;

use candle_core::{Result, Tensor};

use super::args::{Activation, UnaryOp, Xielu};
use crate::cpu::{Kernel, LANES, Lanes, Level, load_tail, math};
use crate::fresh::{Parts, filled};
use crate::pool;
use crate::storage::read;

/// Fewer elements than this stay on the calling thread.
const PARALLEL_FROM: usize = 1 << 14;
/// Elements of one chunk.
const CHUNK: usize = 1 << 12;

/// `op` of every element of `x`, by the kernels of a level.
pub(super) fn unary(level: Level, op: UnaryOp, x: &Tensor) -> Result<Tensor> {
    let input = read("pointwise", x);
    let values = input.contiguous::<f32>()?;
    let run = |out: &Parts<'_, MaybeUninit<f32>>| {
        let part = |range: Range<usize>| {
            // SAFETY: the ranges of chunks don't overlap.
            let out = unsafe { out.part(range.clone()) };
            level.run(Run { op, x: &values[range], out });
        };
        if values.len() < PARALLEL_FROM {
            part(0..values.len());
            return;
        }
        pool::for_each_chunk(values.len().div_ceil(CHUNK), |chunk| {
            part(chunk * CHUNK..values.len().min((chunk + 1) * CHUNK));
        });
    };
    // SAFETY: the chunks cover all elements and `Run` writes every one of them.
    let out = unsafe { filled(values.len(), run) };
    Tensor::from_vec(out, x.dims(), x.device())
}

/// Writes every element of `out`, which is as long as `x`.
struct Run<'a> {
    op: UnaryOp,
    x: &'a [f32],
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Run<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (x, x_tail) = self.x.as_chunks::<LANES>();
        let (out, out_tail) = self.out.as_chunks_mut::<LANES>();
        for (x, out) in x.iter().zip(out) {
            l.write(apply(l, self.op, l.load(x)), out);
        }
        let mut tail = [0.0; LANES];
        l.store(apply(l, self.op, load_tail(l, x_tail)), &mut tail);
        for (x, out) in tail.into_iter().zip(out_tail) {
            out.write(x);
        }
    }
}

#[inline(always)]
fn apply<L: Lanes>(l: L, op: UnaryOp, x: L::V) -> L::V {
    match op {
        UnaryOp::Activation(activation) => activated(l, activation, x),
        UnaryOp::Xielu(Xielu { positive, negative, beta }) => {
            let zero = l.splat(0.0);
            let (above, below) = (l.max(zero, x), l.min(zero, x));
            // Each of the two parts is zero on the other's side.
            let curve = l.sub(l.sub(math::exp(l, below), l.splat(1.0)), below);
            let sum = l.mul_add(curve, l.splat(negative), l.mul(x, l.splat(beta)));
            l.mul_add(l.mul(above, above), l.splat(positive), sum)
        }
        UnaryOp::Sigmoid => math::sigmoid(l, x),
        UnaryOp::SoftCap(cap) => {
            let tanh = math::tanh(l, l.div(x, l.splat(cap)));
            l.mul(tanh, l.splat(cap))
        }
    }
}

/// `activation(x)` of each lane.
#[inline(always)]
pub(crate) fn activated<L: Lanes>(l: L, activation: Activation, x: L::V) -> L::V {
    match activation {
        Activation::Silu => l.mul(x, math::sigmoid(l, x)),
        Activation::Gelu => {
            let magnitude = l.max(x, l.sub(l.splat(0.0), x));
            let erf = math::erf_of_positive(l, l.mul(magnitude, l.splat(0.707_106_77)));
            // The error function is odd, so its sign and that of x meet in the magnitude.
            l.mul(l.splat(0.5), l.mul_add(magnitude, erf, x))
        }
        Activation::GeluTanh => math::gelu_tanh(l, x),
        Activation::Relu => l.max(l.splat(0.0), x),
        Activation::ReluSquared => {
            let positive = l.max(l.splat(0.0), x);
            l.mul(positive, positive)
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::super::args::ALL;
    use super::super::portable;
    use super::*;
    use crate::random::{Random, assert_close, bits};

    fn at(level: Level, activation: Activation, x: &Tensor) -> Tensor {
        unary(level, UnaryOp::Activation(activation), x).unwrap()
    }

    #[test]
    fn equals_the_plain_operations() {
        let mut random = Random::new(1);
        for count in [1, 16, 37, 20_011] {
            let x = (random.tensor(count) * 4.0).unwrap();
            for function in ALL {
                let expected = portable::pointwise(function, &x).unwrap();
                for level in Level::available() {
                    assert_close(&at(level, function, &x), &expected, 1e-6);
                }
            }
        }
    }

    #[test]
    fn far_from_zero_it_is_the_number_or_zero() {
        let x = Tensor::new(&[-1e4_f32, -30.0, 0.0, 30.0, 1e4], &Device::Cpu).unwrap();
        for function in ALL {
            for level in Level::available() {
                let y: Vec<f32> = at(level, function, &x).to_vec1().unwrap();
                let squared = function == Activation::ReluSquared;
                let expected = if squared {
                    [0.0_f32, 0.0, 0.0, 900.0, 1e8]
                } else {
                    [0.0_f32, 0.0, 0.0, 30.0, 1e4]
                };
                let near = |(y, expected): (&f32, f32)| (y - expected).abs() < 1e-3;
                assert!(y.iter().zip(expected).all(near), "{function:?} {y:?}");
            }
        }
    }

    #[test]
    fn an_element_does_not_depend_on_its_place() {
        let mut random = Random::new(2);
        let x = random.tensor(20_011);
        for function in ALL {
            for level in Level::available() {
                let all = at(level, function, &x);
                let alone = at(level, function, &x.narrow(0, 20_003, 3).unwrap());
                assert_eq!(bits(&alone), bits(&all.narrow(0, 20_003, 3).unwrap()));
            }
        }
    }

    #[test]
    fn capped_numbers_equal_the_plain_operations_and_stay_below_the_cap() {
        let mut random = Random::new(3);
        let x = (random.tensor(2_003) * 90.0).unwrap();
        let expected = portable::soft_cap(30.0, &x).unwrap();
        for level in Level::available() {
            let y = unary(level, UnaryOp::SoftCap(30.0), &x).unwrap();
            assert_close(&y, &expected, 1e-5);
            assert!(y.to_vec1::<f32>().unwrap().iter().all(|y| y.abs() <= 30.0));
        }
    }

    #[test]
    fn a_learned_activation_equals_the_plain_operations() {
        let x = (Random::new(4).tensor(2_003) * 6.0).unwrap();
        let parameters = Xielu { positive: 0.8, negative: 1.3, beta: 0.5 };
        let expected = portable::xielu(parameters, &x).unwrap();
        for level in Level::available() {
            let y = unary(level, UnaryOp::Xielu(parameters), &x).unwrap();
            assert_close(&y, &expected, 1e-5);
        }
    }
}
