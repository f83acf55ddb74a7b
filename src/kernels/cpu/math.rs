//! Functions of whole vectors: exponential and what is built on it.
//!
//! The exponential reduces to 2^n * e^r with |r| <= ln(2) / 2 and a polynomial of degree 7
//! (Cephes, S. L. Moshier, `expf`); its error is about one unit in the last place.

use super::lanes::Lanes;

/// Where e^x is no longer a normal f32.
const SMALLEST: f32 = -87.0;
/// Where e^x is still finite.
const LARGEST: f32 = 88.3;

/// e^x; 0 below -87, at most e^88.3, NaN of NaN.
#[inline(always)]
pub(crate) fn exp<L: Lanes>(l: L, x: L::V) -> L::V {
    // The bound comes first: where either operand is NaN the second one is returned.
    let clamped = l.min(l.splat(LARGEST), l.max(l.splat(SMALLEST), x));
    let n = l.round(l.mul(clamped, l.splat(std::f32::consts::LOG2_E)));
    let rest = less_ln2(l, clamped, n);
    let mut sum = l.splat(1.987_569_1e-4);
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
        sum = l.mul_add(sum, rest, l.splat(coefficient));
    }
    let power = l.add(l.mul_add(sum, l.mul(rest, rest), rest), l.splat(1.0));
    l.zero_below(l.mul(power, l.pow2(n)), x, l.splat(SMALLEST))
}

/// x - n * ln(2); ln(2) is in two parts, so that the product of the first with n is exact.
#[inline(always)]
fn less_ln2<L: Lanes>(l: L, x: L::V, n: L::V) -> L::V {
    let rest = l.mul_add(n, l.splat(-0.693_359_4), x);
    l.mul_add(n, l.splat(2.121_944_4e-4), rest)
}

/// Added to a number below 2^22 and subtracted again, it rounds that to an integer, ties to even.
const TO_INTEGER: f32 = 12_582_912.0;

/// e^x within two units of the last place for x of at most about 0; 0 below -87, 1 of 0, NaN of NaN.
///
/// Reduced as [`exp`], with a polynomial of degree 5 whose largest relative error is least (found by iterated least
/// squares): for softmax, of which it is a good part.
#[inline(always)]
pub(crate) fn exp_of_negative<L: Lanes>(l: L, x: L::V) -> L::V {
    let clamped = l.max(l.splat(SMALLEST), x);
    let n = l.mul_add(clamped, l.splat(std::f32::consts::LOG2_E), l.splat(TO_INTEGER));
    let n = l.sub(n, l.splat(TO_INTEGER));
    let rest = less_ln2(l, clamped, n);
    let mut sum = l.splat(8.312_501e-3);
    for coefficient in [4.189_033e-2, 0.166_671_15, 0.499_992_3, 1.0, 1.0] {
        sum = l.mul_add(sum, rest, l.splat(coefficient));
    }
    l.zero_below(l.times_pow2(sum, n), x, l.splat(SMALLEST))
}

/// 1 / (1 + e^-x)
#[inline(always)]
pub(crate) fn sigmoid<L: Lanes>(l: L, x: L::V) -> L::V {
    let one = l.splat(1.0);
    l.div(one, l.add(one, exp(l, l.sub(l.splat(0.0), x))))
}

/// The error function for x of at least 0, within 3e-7: Abramowitz and Stegun, "Handbook of
/// Mathematical Functions", 7.1.26.
#[inline(always)]
pub(crate) fn erf_of_positive<L: Lanes>(l: L, x: L::V) -> L::V {
    let one = l.splat(1.0);
    let t = l.div(one, l.mul_add(x, l.splat(0.327_591_1), one));
    let mut sum = l.splat(1.061_405_4);
    for coefficient in [-1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6] {
        sum = l.mul_add(sum, t, l.splat(coefficient));
    }
    let decay = exp(l, l.mul(l.sub(l.splat(0.0), x), x));
    l.sub(one, l.mul(l.mul(sum, t), decay))
}

/// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
#[inline(always)]
pub(crate) fn gelu_tanh<L: Lanes>(l: L, x: L::V) -> L::V {
    let cube = l.mul(l.mul(x, x), x);
    let inner = l.mul_add(cube, l.splat(0.044_715), x);
    let tanh = tanh(l, l.mul(inner, l.splat(0.797_884_6)));
    l.mul(l.mul(x, l.splat(0.5)), l.add(l.splat(1.0), tanh))
}

/// tanh(x) = 2 sigmoid(2x) - 1
#[inline(always)]
pub(crate) fn tanh<L: Lanes>(l: L, x: L::V) -> L::V {
    l.mul_add(l.splat(2.0), sigmoid(l, l.add(x, x)), l.splat(-1.0))
}
