//! The gating of a gated MLP on the CPU.

use std::mem::MaybeUninit;
use std::ops::Range;

use candle_core::{Result, Tensor};

use super::args::{Activation, Gating};
use super::cpu::activated;
use crate::cpu::{Kernel, LANES, Lanes, Level, load_tail, math};
use crate::fresh::{Parts, filled};
use crate::pool;
use crate::storage::read;

/// Elements of one chunk.
const CHUNK: usize = 1 << 12;

/// The gated elements of `gate` and `up`, by the kernels of a level.
pub(super) fn gated_pairs(
    level: Level,
    gating: Gating,
    gate: &Tensor,
    up: &Tensor,
) -> Result<Tensor> {
    let [gates, ups] = [gate, up].map(|tensor| read("gated_pairs", tensor));
    let (gates, ups) = (gates.contiguous::<f32>()?, ups.contiguous::<f32>()?);
    let run = |out: &Parts<'_, MaybeUninit<f32>>| {
        pool::for_each_chunk(gates.len().div_ceil(CHUNK), |chunk| {
            let range: Range<usize> = chunk * CHUNK..gates.len().min((chunk + 1) * CHUNK);
            // SAFETY: the ranges of chunks don't overlap.
            let out = unsafe { out.part(range.clone()) };
            level.run(Run { gating, gate: &gates[range.clone()], up: &ups[range], out });
        });
    };
    // SAFETY: the chunks cover all elements and `Run` writes every one of them.
    let out = unsafe { filled(gates.len(), run) };
    Tensor::from_vec(out, gate.dims(), gate.device())
}

/// Writes every element of `out`, which is as long as the other two.
struct Run<'a> {
    gating: Gating,
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Run<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let (gate, gate_tail) = self.gate.as_chunks::<LANES>();
        let (up, up_tail) = self.up.as_chunks::<LANES>();
        let (out, out_tail) = self.out.as_chunks_mut::<LANES>();
        for ((gate, up), out) in gate.iter().zip(up).zip(out) {
            l.write(gated(l, self.gating, l.load(gate), l.load(up)), out);
        }
        let (gate, up) = (load_tail(l, gate_tail), load_tail(l, up_tail));
        let mut tail = [0.0; LANES];
        l.store(gated(l, self.gating, gate, up), &mut tail);
        for (x, out) in tail.into_iter().zip(out_tail) {
            out.write(x);
        }
    }
}

/// `gating` of each lane of a gate and of what it gates.
#[inline(always)]
pub(crate) fn gated<L: Lanes>(l: L, gating: Gating, gate: L::V, up: L::V) -> L::V {
    match gating {
        Gating::Activation(activation) => l.mul(activated(l, activation, gate), up),
        Gating::Clamped { alpha, limit } => {
            let (most, least) = (l.splat(limit), l.splat(-limit));
            let gate = l.min(most, gate);
            let up = l.max(least, l.min(most, up));
            let swish = l.mul(gate, math::sigmoid(l, l.mul(gate, l.splat(alpha))));
            l.mul(swish, l.add(up, l.splat(1.0)))
        }
        Gating::Limited { limit } => {
            let (most, least) = (l.splat(limit), l.splat(-limit));
            let gate = l.min(most, activated(l, Activation::Silu, gate));
            l.mul(gate, l.max(least, l.min(most, up)))
        }
        Gating::Bounded { limit } => {
            let (most, least) = (l.splat(limit), l.splat(-limit));
            let gate = activated(l, Activation::Silu, l.min(most, gate));
            l.mul(gate, l.max(least, l.min(most, up)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::ALL;
    use super::super::portable;
    use super::*;
    use crate::linear::{Layer, linear_each, linear_gated};
    use crate::packed::PackedMatrix;
    use crate::pointwise;
    use crate::random::{Random, assert_close, bits};

    fn all() -> impl Iterator<Item = Gating> {
        let clamped = Gating::Clamped { alpha: 1.702, limit: 2.5 };
        let limited = Gating::Limited { limit: 0.4 };
        let bounded = Gating::Bounded { limit: 0.6 };
        ALL.into_iter().map(Gating::from).chain([clamped, limited, bounded])
    }

    #[test]
    fn equals_the_plain_operations() {
        let mut random = Random::new(1);
        for count in [1024, 37, 3, 20_011] {
            let gate = (random.tensor(count) * 6.0).unwrap();
            let up = random.tensor(count);
            for gating in all() {
                let expected = portable::gated(gating, &gate, &up).unwrap();
                for level in Level::available() {
                    let pairs = gated_pairs(level, gating, &gate, &up).unwrap();
                    assert_close(&pairs, &expected, 2e-6);
                }
            }
        }
    }

    #[test]
    fn pairs_have_the_bits_of_a_product_that_is_gated_at_once() {
        let mut random = Random::new(2);
        let x = random.tensor(5 * 33).reshape((5, 33)).unwrap();
        let [gate, up] = [(), ()].map(|()| {
            let weight = (random.tensor(71 * 33) * 0.5).unwrap().reshape((71, 33)).unwrap();
            PackedMatrix::from_dense(&weight).unwrap()
        });
        let [gate, up] = [&gate, &up].map(|matrix| Layer { matrix, bias: None });
        for gating in all() {
            let at_once = linear_gated(&x, gating, gate, up).unwrap();
            let [gates, ups] = linear_each(&x, [gate, up]).unwrap();
            let pairs = pointwise::gated_pairs(gating, &gates, &ups).unwrap();
            assert_eq!(bits(&pairs), bits(&at_once));
        }
    }
}
