//! `activation(gate) * up`, the middle of a gated MLP, on whole vectors.
//!
//! Shazeer, "GLU Variants Improve Transformer", 2020; Hendrycks and Gimpel, "Gaussian Error Linear
//! Units", 2016.

use super::cpu::{Lanes, math};
use super::pointwise::{Activation, activated};

/// What a gate and the vector beside it make.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gating {
    /// `activation(gate) * up`
    Activation(Activation),
    /// `gate * sigmoid(alpha * gate) * (up + 1)`, the gate at most `limit` and `up` within
    /// `-limit..=limit`.
    Clamped {
        /// Steepness of the sigmoid.
        alpha: f32,
        /// Bound of both.
        limit: f32,
    },
}

impl From<Activation> for Gating {
    fn from(activation: Activation) -> Self {
        Self::Activation(activation)
    }
}

#[inline(always)]
pub(super) fn gated<L: Lanes>(l: L, gating: Gating, gate: L::V, up: L::V) -> L::V {
    match gating {
        Gating::Activation(activation) => l.mul(activated(l, activation, gate), up),
        Gating::Clamped { alpha, limit } => {
            let (most, least) = (l.splat(limit), l.splat(-limit));
            let gate = l.min(most, gate);
            let up = l.max(least, l.min(most, up));
            let swish = l.mul(gate, math::sigmoid(l, l.mul(gate, l.splat(alpha))));
            l.mul(swish, l.add(up, l.splat(1.0)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cpu::{Kernel, LANES, Level, Products};
    use super::super::pointwise::ALL;
    use super::super::portable;
    use super::super::random::{Random, assert_close};
    use super::*;
    use candle_core::{Device, Tensor};

    struct Run<'a>(Gating, &'a [f32], &'a [f32], &'a mut [f32]);

    impl Kernel for Run<'_> {
        #[inline(always)]
        fn run<L: Products>(self, l: L) {
            let (gate, up) = (self.1.as_chunks::<LANES>().0, self.2.as_chunks::<LANES>().0);
            let out = self.3.as_chunks_mut::<LANES>().0;
            for ((gate, up), out) in gate.iter().zip(up).zip(out) {
                l.store(gated(l, self.0, l.load(gate), l.load(up)), out);
            }
        }
    }

    #[test]
    fn equals_the_plain_operations() {
        let mut random = Random::new(1);
        let gate: Vec<f32> = random.floats(1024).into_iter().map(|x| x * 6.0).collect();
        let up = random.floats(1024);
        let tensor = |values: &[f32]| Tensor::new(values, &Device::Cpu).unwrap();
        let clamped = Gating::Clamped { alpha: 1.702, limit: 2.5 };
        for gating in ALL.into_iter().map(Gating::from).chain([clamped]) {
            let expected = portable::gated(gating, &tensor(&gate), &tensor(&up)).unwrap();
            for level in Level::available() {
                let mut out = vec![0.0; 1024];
                level.run(Run(gating, &gate, &up, &mut out));
                assert_close(&tensor(&out), &expected, 2e-6);
            }
        }
    }
}
