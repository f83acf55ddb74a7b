//! Each level of this machine against scalar code and against exact numbers.

#![allow(clippy::float_cmp, reason = "results are exact")]

use half::{bf16, f16};

use super::super::random::Random;
use super::*;

/// Applies `f` to one vector on a level.
fn apply<F: Fn1>(level: Level, x: [f32; LANES], f: F) -> [f32; LANES] {
    struct Apply<'a, F>(F, &'a [f32; LANES], &'a mut [f32; LANES]);
    impl<F: Fn1> Kernel for Apply<'_, F> {
        #[inline(always)]
        fn run<L: Products>(self, l: L) {
            l.store(self.0.call(l, l.load(self.1)), self.2);
        }
    }
    let mut out = [0.0; LANES];
    level.run(Apply(f, &x, &mut out));
    out
}

/// A function of one vector.
trait Fn1 {
    fn call<L: Lanes>(&self, l: L, x: L::V) -> L::V;
}

macro_rules! fn1 {
    ($name:ident, $l:ident, $x:ident => $body:expr) => {
        struct $name;
        impl Fn1 for $name {
            #[inline(always)]
            fn call<L: Lanes>(&self, $l: L, $x: L::V) -> L::V {
                $body
            }
        }
    };
}

fn1!(Exp, l, x => math::exp(l, x));
fn1!(ExpOfNegative, l, x => math::exp_of_negative(l, x));
fn1!(Tanh, l, x => math::tanh(l, x));
fn1!(Sum, l, x => l.splat(l.sum(x)));
fn1!(Largest, l, x => l.splat(l.largest(x)));
fn1!(Round, l, x => l.round(x));
fn1!(Arithmetic, l, x => {
    let y = l.div(l.add(x, l.splat(1.0)), l.sub(l.splat(5.0), l.mul(x, x)));
    l.min(l.max(y, l.splat(-0.5)), l.splat(0.75))
});

fn vectors(scale: f32) -> Vec<[f32; LANES]> {
    let mut random = Random::new(1);
    (0..200).map(|_| std::array::from_fn(|_| random.float() * scale)).collect()
}

#[test]
fn exp_is_within_two_units_of_the_last_place() {
    let is_exact = |level: Level, x: f32, ours: f32| {
        let exact = f64::from(x).exp();
        let off = (f64::from(ours) - exact).abs() / exact;
        assert!(off < 2.4e-7, "{}: exp({x}) = {ours}, off by {off}", level.name());
    };
    for level in Level::available() {
        for x in vectors(43.0) {
            for (x, ours) in x.into_iter().zip(apply(level, x, Exp)) {
                is_exact(level, x, ours);
            }
            let negative = x.map(|x| -x.abs());
            for (x, ours) in negative.into_iter().zip(apply(level, negative, ExpOfNegative)) {
                is_exact(level, x, ours);
            }
        }
    }
}

#[test]
fn exp_and_tanh_keep_their_limits() {
    for level in Level::available() {
        let mut x = [0.0; LANES];
        x[..6].copy_from_slice(&[f32::NEG_INFINITY, -200.0, f32::NAN, 0.0, 200.0, f32::INFINITY]);
        let exp = apply(level, x, Exp);
        assert_eq!(exp[..2], [0.0, 0.0]);
        assert!(exp[2].is_nan());
        assert_eq!(exp[3], 1.0);
        assert!(exp[4] > 1e38 && exp[4].is_finite() && exp[5] == exp[4]);
        let negative = apply(level, x, ExpOfNegative);
        assert_eq!(negative[..2], [0.0, 0.0]);
        assert!(negative[2].is_nan());
        assert_eq!(negative[3], 1.0);
        let tanh = apply(level, x, Tanh);
        assert_eq!(tanh[..2], [-1.0, -1.0]);
        assert!(tanh[2].is_nan());
        assert_eq!([tanh[3], tanh[4], tanh[5]], [0.0, 1.0, 1.0]);
    }
}

#[test]
fn levels_agree_with_scalar_to_the_bit_where_nothing_is_fused() {
    for level in Level::available() {
        for x in vectors(3.0) {
            for (ours, scalar) in [
                (apply(level, x, Sum), apply(Level::scalar(), x, Sum)),
                (apply(level, x, Largest), apply(Level::scalar(), x, Largest)),
                (apply(level, x, Round), apply(Level::scalar(), x, Round)),
                (apply(level, x, Arithmetic), apply(Level::scalar(), x, Arithmetic)),
            ] {
                assert_eq!(ours.map(f32::to_bits), scalar.map(f32::to_bits), "{}", level.name());
            }
        }
    }
}

#[test]
fn transpose_swaps_rows_and_columns() {
    struct Transpose<'a>(&'a mut [[f32; LANES]; LANES]);
    impl Kernel for Transpose<'_> {
        #[inline(always)]
        fn run<L: Products>(self, l: L) {
            let mut rows = [l.splat(0.0); LANES];
            for (row, from) in rows.iter_mut().zip(self.0.iter()) {
                *row = l.load(from);
            }
            for (row, out) in l.transpose(rows).into_iter().zip(self.0) {
                l.store(row, out);
            }
        }
    }
    let mut random = Random::new(2);
    let matrix: [[f32; LANES]; LANES] =
        std::array::from_fn(|_| [0.0; LANES].map(|_| random.float()));
    for level in Level::available() {
        let mut transposed = matrix;
        level.run(Transpose(&mut transposed));
        for i in 0..LANES {
            for j in 0..LANES {
                assert_eq!(transposed[i][j], matrix[j][i], "{}", level.name());
            }
        }
    }
}

#[test]
fn every_half_widens_exactly() {
    struct Widen<'a, E>(&'a [E; LANES], &'a mut [f32; LANES]);
    impl<E: Element> Kernel for Widen<'_, E> {
        #[inline(always)]
        fn run<L: Products>(self, l: L) {
            l.store(E::load(l, self.0), self.1);
        }
    }
    for level in Level::available() {
        for first in (0..=u16::MAX).step_by(LANES) {
            let pattern: [u16; LANES] = std::array::from_fn(|i| first + u16::try_from(i).unwrap());
            let (brain, half) = (pattern.map(bf16::from_bits), pattern.map(f16::from_bits));
            let (mut wide_brain, mut wide_half) = ([0.0; LANES], [0.0; LANES]);
            level.run(Widen(&brain, &mut wide_brain));
            level.run(Widen(&half, &mut wide_half));
            for i in 0..LANES {
                if brain[i].is_nan() {
                    assert!(wide_brain[i].is_nan());
                } else {
                    assert_eq!(wide_brain[i].to_bits(), brain[i].to_f32().to_bits());
                }
                if half[i].is_nan() {
                    assert!(wide_half[i].is_nan());
                } else {
                    assert_eq!(wide_half[i].to_bits(), half[i].to_f32().to_bits());
                }
            }
        }
    }
}

/// Halves on both sides of every tie, limits, and what is no number.
fn to_narrow() -> Vec<[f32; LANES]> {
    let mut random = Random::new(3);
    let mut all = vectors(3.0);
    all.extend(vectors(1e-6));
    all.extend(vectors(1e5));
    all.push(std::array::from_fn(|i| (f32::from(u8::try_from(i).unwrap()) - 8.0) + 0.5));
    let special = [f32::NAN, f32::INFINITY, -f32::INFINITY, 0.0, -0.0, f32::MAX, f32::MIN, 1e-40];
    all.push(std::array::from_fn(|i| special[i % special.len()]));
    all.push([f32::from_bits(0x7fff_ffff); LANES]);
    all.extend((0..2000).map(|_| {
        // The high word is any number; the low one lies at and around the middle.
        [0; LANES].map(|_| {
            let high = u32::try_from(random.below(1 << 16)).unwrap() << 16;
            f32::from_bits(high | [0, 0x7fff, 0x8000, 0x8001, 0x1000, 0x3000][random.below(6)])
        })
    }));
    all
}

#[test]
fn narrowing_rounds_as_the_half_crate_does() {
    struct Narrow<'a, E>(&'a [f32; LANES], &'a mut [E; LANES]);
    impl<E: Element> Kernel for Narrow<'_, E> {
        #[inline(always)]
        fn run<L: Products>(self, l: L) {
            *self.1 = E::narrow(l, l.load(self.0));
        }
    }
    struct Normal<'a>(&'a [f32; LANES], &'a mut [bf16; LANES]);
    impl Kernel for Normal<'_> {
        #[inline(always)]
        fn run<L: Products>(self, l: L) {
            *self.1 = l.narrow_normal_bf16(l.load(self.0));
        }
    }
    for level in Level::available() {
        for x in to_narrow() {
            let (mut brain, mut half) = ([bf16::ZERO; LANES], [f16::ZERO; LANES]);
            level.run(Narrow(&x, &mut brain));
            let mut normal = [bf16::ZERO; LANES];
            level.run(Normal(&x, &mut normal));
            for (normal, brain) in normal.iter().zip(&brain) {
                let subnormal = normal.to_f32() == 0.0 && brain.to_f32().abs() <= f32::MIN_POSITIVE;
                let both_nan = normal.is_nan() && brain.is_nan();
                assert!(normal.to_bits() == brain.to_bits() || subnormal || both_nan, "{brain}");
            }
            level.run(Narrow(&x, &mut half));
            for i in 0..LANES {
                if x[i].is_nan() {
                    assert!(brain[i].is_nan() && half[i].is_nan(), "{}", level.name());
                } else {
                    let what = format!("{} on {}", x[i], level.name());
                    assert_eq!(brain[i].to_bits(), bf16::from_f32(x[i]).to_bits(), "{what}");
                    assert_eq!(half[i].to_bits(), f16::from_f32(x[i]).to_bits(), "{what}");
                }
            }
        }
    }
}

#[test]
fn bytes_widen_exactly_and_narrow_with_saturation() {
    struct Bytes<'a>(&'a [f32; LANES], &'a mut [i8; LANES], &'a mut [f32; LANES]);
    impl Kernel for Bytes<'_> {
        #[inline(always)]
        fn run<L: Products>(self, l: L) {
            *self.1 = l.narrow_i8(l.load(self.0));
            l.store(l.load_i8(self.1), self.2);
        }
    }
    for level in Level::available() {
        for x in vectors(70.0)
            .into_iter()
            .chain([std::array::from_fn(|i| f32::from(u8::try_from(i).unwrap()) - 7.5)])
        {
            let (mut bytes, mut wide) = ([0; LANES], [0.0; LANES]);
            level.run(Bytes(&x, &mut bytes, &mut wide));
            for i in 0..LANES {
                let exact = x[i].round_ties_even().clamp(-128.0, 127.0);
                assert_eq!((f32::from(bytes[i]), wide[i]), (exact, exact), "{}", level.name());
            }
        }
    }
}
