//! Sixteen lanes in four 128-bit registers.

#![allow(unused_unsafe, reason = "where NEON is part of the target its intrinsics are safe")]

#[allow(clippy::wildcard_imports, reason = "the names are the instructions")]
use std::arch::aarch64::*;

use half::{bf16, f16};

use super::lanes::{Kernel, LANES, Lanes};

/// Proof that the CPU has NEON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon(());

impl Neon {
    pub(super) fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) {
        #[target_feature(enable = "neon")]
        fn with_features<K: Kernel>(lanes: Neon, kernel: K) {
            kernel.run(lanes);
        }
        // SAFETY: `self` was made by `detect`, so the CPU has the feature.
        unsafe { with_features(self, kernel) }
    }
}

/// Calls intrinsics, once for each of the four registers.
macro_rules! each {
    ($i:ident => $call:expr) => {{
        // SAFETY: the token proves the feature; pointers come from references to whole vectors.
        unsafe {
            [
                {
                    const $i: usize = 0;
                    $call
                },
                {
                    const $i: usize = 1;
                    $call
                },
                {
                    const $i: usize = 2;
                    $call
                },
                {
                    const $i: usize = 3;
                    $call
                },
            ]
        }
    }};
}

impl Lanes for Neon {
    type V = [float32x4_t; 4];
    const WIDE: bool = false;

    fn call<K: Kernel>(self, part: K) {
        self.run(part);
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        each!(I => { let _ = I; vdupq_n_f32(x) })
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        each!(I => vld1q_f32(x.as_ptr().add(4 * I)))
    }
    #[inline(always)]
    fn load_bf16(self, x: &[bf16; LANES]) -> Self::V {
        each!(I => {
            let narrow = vld1_u16(x.as_ptr().cast::<u16>().add(4 * I));
            vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(narrow)))
        })
    }
    #[inline(always)]
    fn load_f16(self, x: &[f16; LANES]) -> Self::V {
        self.load(&x.map(f16::to_f32))
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::V {
        self.load(&x.map(f32::from))
    }
    #[inline(always)]
    fn narrow_bf16(self, v: Self::V) -> [bf16; LANES] {
        let mut out = [bf16::ZERO; LANES];
        each!(I => {
            let bits = vreinterpretq_u32_f32(v[I]);
            let high = vshrq_n_u32::<16>(bits);
            let odd = vandq_u32(high, vdupq_n_u32(1));
            let half = vaddq_u32(odd, vdupq_n_u32(0x7fff));
            let rounded = vshrq_n_u32::<16>(vaddq_u32(bits, half));
            // Rounding could carry a NaN over to infinity: it is cut off and made quiet instead.
            let quiet = vorrq_u32(high, vdupq_n_u32(0x40));
            let number = vceqq_f32(v[I], v[I]);
            let narrow = vmovn_u32(vbslq_u32(number, rounded, quiet));
            vst1_u16(out.as_mut_ptr().cast::<u16>().add(4 * I), narrow);
        });
        out
    }
    #[inline(always)]
    fn narrow_f16(self, v: Self::V) -> [f16; LANES] {
        let mut wide = [0.0; LANES];
        self.store(v, &mut wide);
        wide.map(f16::from_f32)
    }
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    fn narrow_i8(self, v: Self::V) -> [i8; LANES] {
        let mut wide = [0.0; LANES];
        self.store(self.round(v), &mut wide);
        wide.map(|x| x as i8)
    }
    #[inline(always)]
    unsafe fn store_at(self, v: Self::V, out: *mut f32) {
        each!(I => vst1q_f32(out.add(4 * I), v[I]));
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        each!(I => vaddq_f32(a[I], b[I]))
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        each!(I => vsubq_f32(a[I], b[I]))
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        each!(I => vmulq_f32(a[I], b[I]))
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        each!(I => vdivq_f32(a[I], b[I]))
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        each!(I => vfmaq_f32(c[I], a[I], b[I]))
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        each!(I => vmaxq_f32(a[I], b[I]))
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        each!(I => vminq_f32(a[I], b[I]))
    }
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        each!(I => vrndnq_f32(a[I]))
    }
    #[inline(always)]
    fn pow2(self, n: Self::V) -> Self::V {
        each!(I => {
            let exponent = vaddq_s32(vcvtnq_s32_f32(n[I]), vdupq_n_s32(127));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(exponent))
        })
    }
    #[inline(always)]
    fn zero_below(self, v: Self::V, x: Self::V, bound: Self::V) -> Self::V {
        each!(I => {
            let below = vcltq_f32(x[I], bound[I]);
            vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v[I]), below))
        })
    }
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        // SAFETY: the token proves the feature.
        unsafe {
            let by4 = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
            let by2 = vadd_f32(vget_low_f32(by4), vget_high_f32(by4));
            vget_lane_f32::<0>(by2) + vget_lane_f32::<1>(by2)
        }
    }
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        // SAFETY: the token proves the feature.
        unsafe { vmaxvq_f32(vmaxq_f32(vmaxq_f32(v[0], v[2]), vmaxq_f32(v[1], v[3]))) }
    }
}
