//! Sixteen lanes in four 128-bit registers.
//!
//! Stable Rust has no intrinsics for the extensions yet, nor for prefetching, so those few
//! instructions are written in assembly.

#![allow(unused_unsafe, reason = "where NEON is part of the target its intrinsics are safe")]

#[allow(clippy::wildcard_imports, reason = "the names are the instructions")]
use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};

use half::{bf16, f16};

use super::lanes::{Kernel, LANES, Lanes};

/// Proof that the CPU has NEON and, by `EXTENSIONS`, what later cores have besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon<const EXTENSIONS: u8>(());

/// NEON alone, as every 64-bit ARM core has it.
pub(super) const NONE: u8 = 0;
/// Dot products of bytes (FEAT_DotProd).
pub(super) const DOT: u8 = 1;
/// [`DOT`], and those of unsigned with signed bytes (FEAT_I8MM).
pub(super) const I8MM: u8 = 2;
/// [`I8MM`], and dot products of bf16 (FEAT_BF16).
pub(super) const BF16: u8 = 3;

impl<const EXTENSIONS: u8> Neon<EXTENSIONS> {
    pub(super) fn detect() -> Option<Self> {
        let found = is_aarch64_feature_detected!("neon")
            && (EXTENSIONS < DOT || is_aarch64_feature_detected!("dotprod"))
            && (EXTENSIONS < I8MM || is_aarch64_feature_detected!("i8mm"))
            && (EXTENSIONS < BF16 || is_aarch64_feature_detected!("bf16"));
        found.then_some(Self(()))
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) {
        #[target_feature(enable = "neon")]
        fn with_neon<const EXTENSIONS: u8, K: Kernel>(lanes: Neon<EXTENSIONS>, kernel: K) {
            kernel.run(lanes);
        }
        #[target_feature(enable = "neon,dotprod")]
        fn with_dot<const EXTENSIONS: u8, K: Kernel>(lanes: Neon<EXTENSIONS>, kernel: K) {
            kernel.run(lanes);
        }
        #[target_feature(enable = "neon,dotprod,i8mm")]
        fn with_i8mm<const EXTENSIONS: u8, K: Kernel>(lanes: Neon<EXTENSIONS>, kernel: K) {
            kernel.run(lanes);
        }
        #[target_feature(enable = "neon,dotprod,i8mm,bf16")]
        fn with_bf16<const EXTENSIONS: u8, K: Kernel>(lanes: Neon<EXTENSIONS>, kernel: K) {
            kernel.run(lanes);
        }
        // SAFETY: `self` was made by `detect`, so the CPU has the features.
        unsafe {
            match EXTENSIONS {
                NONE => with_neon(self, kernel),
                DOT => with_dot(self, kernel),
                I8MM => with_i8mm(self, kernel),
                _ => with_bf16(self, kernel),
            }
        }
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
pub(super) use each;

/// `v` rounded to bf16, ties to even; NaN stays NaN.
///
/// # Safety
///
/// NEON is there and, if `INSTRUCTION`, that of FEAT_BF16.
#[inline(always)]
unsafe fn to_bf16<const INSTRUCTION: bool>(v: float32x4_t) -> uint16x4_t {
    // SAFETY: the caller's promise.
    unsafe {
        if INSTRUCTION {
            let narrow: uint16x4_t;
            asm!("bfcvtn {0:v}.4h, {1:v}.4s", lateout(vreg) narrow, in(vreg) v,
                options(pure, nomem, nostack, preserves_flags));
            return narrow;
        }
        let bits = vreinterpretq_u32_f32(v);
        let high = vshrq_n_u32::<16>(bits);
        let odd = vandq_u32(high, vdupq_n_u32(1));
        let half = vaddq_u32(odd, vdupq_n_u32(0x7fff));
        let rounded = vshrq_n_u32::<16>(vaddq_u32(bits, half));
        // Rounding could carry a NaN over to infinity: it is cut off and made quiet instead.
        let quiet = vorrq_u32(high, vdupq_n_u32(0x40));
        let number = vceqq_f32(v, v);
        vmovn_u32(vbslq_u32(number, rounded, quiet))
    }
}

/// Sixteen signed bytes as i32.
///
/// # Safety
///
/// NEON is there.
#[inline(always)]
unsafe fn widen_i8(x: int8x16_t) -> [int32x4_t; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let (low, high) = (vmovl_s8(vget_low_s8(x)), vmovl_high_s8(x));
        [
            vmovl_s16(vget_low_s16(low)),
            vmovl_high_s16(low),
            vmovl_s16(vget_low_s16(high)),
            vmovl_high_s16(high),
        ]
    }
}

/// Lane `i` of register `j` becomes lane `j` of register `i`.
///
/// # Safety
///
/// NEON is there.
#[inline(always)]
unsafe fn transpose_four(rows: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let [a, b, c, d] = rows;
        let even = [vtrn1q_f32(a, b), vtrn1q_f32(c, d)].map(|v| vreinterpretq_f64_f32(v));
        let odd = [vtrn2q_f32(a, b), vtrn2q_f32(c, d)].map(|v| vreinterpretq_f64_f32(v));
        [
            vreinterpretq_f32_f64(vtrn1q_f64(even[0], even[1])),
            vreinterpretq_f32_f64(vtrn1q_f64(odd[0], odd[1])),
            vreinterpretq_f32_f64(vtrn2q_f64(even[0], even[1])),
            vreinterpretq_f32_f64(vtrn2q_f64(odd[0], odd[1])),
        ]
    }
}

impl<const EXTENSIONS: u8> Lanes for Neon<EXTENSIONS> {
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
        each!(I => {
            let narrow = vld1_u16(x.as_ptr().cast::<u16>().add(4 * I));
            vcvt_f32_f16(vreinterpret_f16_u16(narrow))
        })
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::V {
        // SAFETY: the token proves the feature; the reference covers sixteen bytes.
        let wide = unsafe { widen_i8(vld1q_s8(x.as_ptr())) };
        each!(I => vcvtq_f32_s32(wide[I]))
    }
    #[inline(always)]
    fn narrow_bf16(self, v: Self::V) -> [bf16; LANES] {
        let mut out = [bf16::ZERO; LANES];
        each!(I => {
            let narrow = if EXTENSIONS < BF16 {
                to_bf16::<false>(v[I])
            } else {
                to_bf16::<true>(v[I])
            };
            vst1_u16(out.as_mut_ptr().cast::<u16>().add(4 * I), narrow);
        });
        out
    }
    #[inline(always)]
    fn narrow_f16(self, v: Self::V) -> [f16; LANES] {
        let mut out = [f16::ZERO; LANES];
        each!(I => {
            let narrow = vreinterpret_u16_f16(vcvt_f16_f32(v[I]));
            vst1_u16(out.as_mut_ptr().cast::<u16>().add(4 * I), narrow);
        });
        out
    }
    #[inline(always)]
    fn narrow_i8(self, v: Self::V) -> [i8; LANES] {
        let mut out = [0; LANES];
        let wide = each!(I => vqmovn_s32(vcvtnq_s32_f32(v[I])));
        // SAFETY: the token proves the feature; the array has sixteen bytes.
        unsafe {
            let low = vqmovn_s16(vcombine_s16(wide[0], wide[1]));
            let high = vqmovn_s16(vcombine_s16(wide[2], wide[3]));
            vst1q_s8(out.as_mut_ptr(), vcombine_s8(low, high));
        }
        out
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
    fn prefetch<T>(self, at: *const T) {
        // SAFETY: prefetching is a hint, which faults at no address.
        unsafe {
            asm!("prfm pldl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
        }
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
    #[inline(always)]
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES] {
        let mut columns = rows;
        for i in 0..4 {
            for j in 0..4 {
                // SAFETY: the token proves the feature.
                let block = unsafe {
                    transpose_four([
                        rows[4 * j][i],
                        rows[4 * j + 1][i],
                        rows[4 * j + 2][i],
                        rows[4 * j + 3][i],
                    ])
                };
                for (k, column) in block.into_iter().enumerate() {
                    columns[4 * i + k][j] = column;
                }
            }
        }
        columns
    }
}
