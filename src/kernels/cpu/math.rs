//! Functions of whole vectors: exponential and what is built on it.
//!
//! The exponential reduces to 2^n * e^r with |r| <= ln(2) / 2 and a polynomial of degree 7
//! (Cephes, S. L. Moshier, `expf`); its error is about one unit in the last place.

use super::Lanes;

/// Where e^x is no longer a normal f32.
const SMALLEST: f32 = -87.0;
/// Where e^x is still finite.
const LARGEST: f32 = 88.3;

/// e^x; 0 below -87, at most e^88.3, NaN of NaN.
#[inline(always)]
pub(in crate::kernels) fn exp<L: Lanes>(l: L, x: L::V) -> L::V {
    // The bound comes first: where either operand is NaN the second one is returned.
    let clamped = l.min(l.splat(LARGEST), l.max(l.splat(SMALLEST), x));
    let n = l.round(l.mul(clamped, l.splat(std::f32::consts::LOG2_E)));
    // ln(2) in two parts, so that the product with n is exact.
    let rest = l.mul_add(n, l.splat(-0.693_359_4), clamped);
    let rest = l.mul_add(n, l.splat(2.121_944_4e-4), rest);
    let mut sum = l.splat(1.987_569_1e-4);
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
        sum = l.mul_add(sum, rest, l.splat(coefficient));
    }
    let power = l.add(l.mul_add(sum, l.mul(rest, rest), rest), l.splat(1.0));
    l.zero_below(l.mul(power, l.pow2(n)), x, l.splat(SMALLEST))
}

/// 1 / (1 + e^-x)
#[inline(always)]
pub(in crate::kernels) fn sigmoid<L: Lanes>(l: L, x: L::V) -> L::V {
    let one = l.splat(1.0);
    l.div(one, l.add(one, exp(l, l.sub(l.splat(0.0), x))))
}

/// tanh(x) = 2 sigmoid(2x) - 1
#[inline(always)]
pub(in crate::kernels) fn tanh<L: Lanes>(l: L, x: L::V) -> L::V {
    l.mul_add(l.splat(2.0), sigmoid(l, l.add(x, x)), l.splat(-1.0))
}
