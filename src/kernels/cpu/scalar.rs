//! Sixteen lanes in plain Rust: always compiled, and the oracle of the other levels.

use half::{bf16, f16};

use super::lanes::{Kernel, LANES, Lanes};

/// Plain Rust, which needs no CPU feature.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

#[inline(always)]
fn each(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Lanes for Scalar {
    type V = [f32; LANES];
    const WIDE: bool = false;

    fn call<K: Kernel>(self, part: K) {
        part.run(self);
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        *x
    }
    #[inline(always)]
    fn load_bf16(self, x: &[bf16; LANES]) -> Self::V {
        x.map(|x| f32::from_bits(u32::from(x.to_bits()) << 16))
    }
    #[inline(always)]
    fn load_f16(self, x: &[f16; LANES]) -> Self::V {
        x.map(f16::to_f32)
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::V {
        x.map(f32::from)
    }
    #[inline(always)]
    fn narrow_bf16(self, v: Self::V) -> [bf16; LANES] {
        v.map(bf16::from_f32)
    }
    #[inline(always)]
    fn narrow_f16(self, v: Self::V) -> [f16; LANES] {
        v.map(f16::from_f32)
    }
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    fn narrow_i8(self, v: Self::V) -> [i8; LANES] {
        v.map(|x| x.round_ties_even() as i8)
    }
    #[inline(always)]
    unsafe fn store_at(self, v: Self::V, out: *mut f32) {
        // SAFETY: the caller's promise; arrays of floats need no more alignment than a float.
        unsafe { out.cast::<[f32; LANES]>().write(v) }
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        each(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        each(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        each(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        each(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Not fused: without the instruction a fused operation is a library call per lane.
        self.add(self.mul(a, b), c)
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        each(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        each(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        a.map(f32::round_ties_even)
    }
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "integers >= 1")]
    fn pow2(self, n: Self::V) -> Self::V {
        n.map(|n| f32::from_bits(((n + 127.0) as i32 as u32) << 23))
    }
    #[inline(always)]
    fn zero_below(self, v: Self::V, x: Self::V, bound: Self::V) -> Self::V {
        std::array::from_fn(|i| if x[i] < bound[i] { 0.0 } else { v[i] })
    }
    #[inline(always)]
    fn sum(self, mut v: Self::V) -> f32 {
        for apart in [8, 4, 2, 1] {
            for i in 0..apart {
                v[i] += v[i + apart];
            }
        }
        v[0]
    }
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        v.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}
