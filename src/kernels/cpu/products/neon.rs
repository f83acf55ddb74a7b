//! Products in four 128-bit registers, with or without the instructions made for them.
//!
//! The right side of a product is the same in every lane. Where the instruction can take one
//! element for all lanes, it stays in lane 0 of one register: a load, and no copies.

#![allow(unused_unsafe, reason = "where NEON is part of the target its intrinsics are safe")]

#[allow(clippy::wildcard_imports, reason = "the names are the instructions")]
use std::arch::aarch64::*;
use std::arch::asm;

use half::bf16;

use super::super::lanes::{LANES, Products};
use super::super::neon::{BF16, DOT, I8MM, Neon, each};

/// Each of the eight bytes, eight times.
///
/// # Safety
///
/// NEON is there.
#[inline(always)]
unsafe fn each_eight_times(x: uint8x8_t) -> [uint8x16_t; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let all = vcombine_u8(x, x);
        let twice = vreinterpretq_u16_u8(vzip1q_u8(all, all));
        let low = vreinterpretq_u32_u16(vzip1q_u16(twice, twice));
        let high = vreinterpretq_u32_u16(vzip2q_u16(twice, twice));
        [
            vreinterpretq_u8_u32(vzip1q_u32(low, low)),
            vreinterpretq_u8_u32(vzip2q_u32(low, low)),
            vreinterpretq_u8_u32(vzip1q_u32(high, high)),
            vreinterpretq_u8_u32(vzip2q_u32(high, high)),
        ]
    }
}

/// Functions of one instruction: a sum, and products with the first element of `x`.
macro_rules! with_first {
    ($($name:ident($sum:ty, $w:ty, $x:ty): $instruction:literal, $feature:literal;)*) => {$(
        #[doc = concat!("`sum` plus products of `w` with the first 32 bits of `x`: ", $instruction)]
        ///
        /// # Safety
        ///
        #[doc = concat!("NEON and ", $feature, " are there.")]
        #[inline(always)]
        unsafe fn $name(sum: $sum, w: $w, x: $x) -> $sum {
            let mut sum = sum;
            // SAFETY: the caller's promise; the instruction only computes.
            unsafe {
                asm!($instruction, inout(vreg) sum, in(vreg) w, in(vreg) x,
                    options(pure, nomem, nostack, preserves_flags));
            }
            sum
        }
    )*};
}

with_first! {
    sdot(int32x4_t, uint8x16_t, uint8x16_t): "sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[0]", "FEAT_DotProd";
    usdot(int32x4_t, uint8x16_t, uint8x16_t): "usdot {0:v}.4s, {1:v}.16b, {2:v}.4b[0]", "FEAT_I8MM";
    bfdot(float32x4_t, uint16x8_t, uint16x8_t): "bfdot {0:v}.4s, {1:v}.8h, {2:v}.2h[0]", "FEAT_BF16";
}

/// Sixteen unsigned bytes as u32.
///
/// # Safety
///
/// NEON is there.
#[inline(always)]
unsafe fn widen_u8(x: uint8x16_t) -> [uint32x4_t; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let (low, high) = (vmovl_u8(vget_low_u8(x)), vmovl_high_u8(x));
        [
            vmovl_u16(vget_low_u16(low)),
            vmovl_high_u16(low),
            vmovl_u16(vget_low_u16(high)),
            vmovl_high_u16(high),
        ]
    }
}

/// `sum` plus four neighbouring products of signed bytes in each lane. Two products fit sixteen
/// bits, since `x` is not below -127.
///
/// # Safety
///
/// NEON is there.
#[inline(always)]
unsafe fn dot(sum: int32x4_t, w: uint8x16_t, x: uint8x16_t) -> int32x4_t {
    // SAFETY: the caller's promise.
    unsafe {
        let (w, x) = (vreinterpretq_s8_u8(w), vreinterpretq_s8_u8(x));
        let low = vmull_s8(vget_low_s8(w), vget_low_s8(x));
        vpadalq_s16(sum, vpaddq_s16(low, vmull_high_s8(w, x)))
    }
}

impl<const EXTENSIONS: u8> Products for Neon<EXTENSIONS> {
    type Pairs = [uint16x8_t; 4];
    type Ints = [int32x4_t; 4];
    type Bytes = [uint8x16_t; 4];
    const WIDE_OFFSET: i32 = if EXTENSIONS < I8MM { 128 } else { 0 };
    const PAIRED: bool = EXTENSIONS >= BF16;

    #[inline(always)]
    fn load_pairs(self, w: &[[bf16; 2]; LANES]) -> Self::Pairs {
        each!(I => vld1q_u16(w.as_ptr().cast::<u16>().add(8 * I)))
    }
    #[inline(always)]
    fn widen_pairs(self, w: &[[bf16; 2]; LANES]) -> [Self::V; 2] {
        let words = each!(I => vld1q_u32(w.as_ptr().cast::<u32>().add(4 * I)));
        [
            each!(I => vreinterpretq_f32_u32(vshlq_n_u32::<16>(words[I]))),
            each!(I => vreinterpretq_f32_u32(vandq_u32(words[I], vdupq_n_u32(0xffff_0000)))),
        ]
    }
    #[inline(always)]
    fn splat_pair(self, x: [bf16; 2]) -> Self::Pairs {
        let word = u32::from(x[0].to_bits()) | u32::from(x[1].to_bits()) << 16;
        // SAFETY: the token proves the feature.
        unsafe { [vreinterpretq_u16_u32(vsetq_lane_u32::<0>(word, vdupq_n_u32(0))); 4] }
    }
    #[inline(always)]
    fn dot_pairs(self, acc: Self::V, w: Self::Pairs, x: Self::Pairs) -> Self::V {
        if EXTENSIONS >= BF16 {
            return each!(I => bfdot(acc[I], w[I], x[0]));
        }
        each!(I => {
            let x = vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(vget_low_u16(x[0]))));
            let words = vreinterpretq_u32_u16(w[I]);
            let even = vreinterpretq_f32_u32(vshlq_n_u32::<16>(words));
            let odd = vreinterpretq_f32_u32(vandq_u32(words, vdupq_n_u32(0xffff_0000)));
            vfmaq_laneq_f32::<1>(vfmaq_laneq_f32::<0>(acc[I], even, x), odd, x)
        })
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Ints {
        // SAFETY: the token proves the feature.
        unsafe { [vdupq_n_s32(x); 4] }
    }
    #[inline(always)]
    fn ints_of_bits(self, x: &[f32; LANES]) -> Self::Ints {
        each!(I => vreinterpretq_s32_f32(vld1q_f32(x.as_ptr().add(4 * I))))
    }
    #[inline(always)]
    fn bits_of_ints(self, x: Self::Ints) -> [f32; LANES] {
        // SAFETY: both are sixty-four bytes of which every bit pattern is valid.
        unsafe { std::mem::transmute::<[int32x4_t; 4], [f32; LANES]>(x) }
    }
    #[inline(always)]
    fn ints_to_f32(self, x: Self::Ints) -> Self::V {
        each!(I => vcvtq_f32_s32(x[I]))
    }
    #[inline(always)]
    fn load_bytes(self, x: &[u8; 4 * LANES]) -> Self::Bytes {
        each!(I => vld1q_u8(x.as_ptr().add(16 * I)))
    }
    #[inline(always)]
    fn bytes_to_array(self, x: Self::Bytes) -> [u8; 4 * LANES] {
        // SAFETY: both are sixty-four bytes of which every bit pattern is valid.
        unsafe { std::mem::transmute::<[uint8x16_t; 4], [u8; 4 * LANES]>(x) }
    }
    #[inline(always)]
    fn splat_bytes(self, x: [i8; 4]) -> Self::Bytes {
        let word = u32::from_ne_bytes(x.map(i8::cast_unsigned));
        // SAFETY: the token proves the feature.
        let words = unsafe {
            if EXTENSIONS < DOT {
                vdupq_n_u32(word)
            } else {
                vsetq_lane_u32::<0>(word, vdupq_n_u32(0))
            }
        };
        // SAFETY: the token proves the feature.
        unsafe { [vreinterpretq_u8_u32(words); 4] }
    }
    #[inline(always)]
    fn low_nibbles(self, x: Self::Bytes) -> Self::Bytes {
        each!(I => vandq_u8(x[I], vdupq_n_u8(15)))
    }
    #[inline(always)]
    fn high_nibbles(self, x: Self::Bytes) -> Self::Bytes {
        each!(I => vshrq_n_u8::<4>(x[I]))
    }
    #[inline(always)]
    fn two_bits<const PLACE: usize>(self, x: Self::Bytes) -> Self::Bytes {
        each!(I => {
            let shifted = match PLACE {
                0 => vshlq_n_u8::<4>(x[I]),
                1 => vshlq_n_u8::<2>(x[I]),
                2 => x[I],
                _ => vshrq_n_u8::<2>(x[I]),
            };
            vandq_u8(shifted, vdupq_n_u8(48))
        })
    }
    #[inline(always)]
    fn sixteen_where(self, bits: &[u8; 8]) -> Self::Bytes {
        // SAFETY: the token proves the feature; the reference covers eight bytes.
        let spread = unsafe { each_eight_times(vld1_u8(bits.as_ptr())) };
        each!(I => {
            // Bit `i` of a byte goes to bit 4: by `4 - i` to the left, or to the right below zero.
            let left = vreinterpretq_s8_u64(vdupq_n_u64(0xfdfe_ff00_0102_0304));
            vandq_u8(vshlq_u8(spread[I], left), vdupq_n_u8(16))
        })
    }
    #[inline(always)]
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        each!(I => vorrq_u8(a[I], b[I]))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], x: Self::Bytes) -> Self::Bytes {
        each!(I => vqtbl1q_u8(vld1q_u8(table.as_ptr()), x[I]))
    }
    #[inline(always)]
    fn interleave_bytes(self, lower: Self::Bytes, upper: Self::Bytes) -> [Self::Bytes; 2] {
        [each!(I => vzip1q_u8(lower[I], upper[I])), each!(I => vzip2q_u8(lower[I], upper[I]))]
    }
    #[inline(always)]
    fn dot_small(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints {
        if EXTENSIONS < DOT {
            return each!(I => dot(acc[I], w[I], x[I]));
        }
        each!(I => sdot(acc[I], w[I], x[0]))
    }
    #[inline(always)]
    fn dot_wide(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints {
        if EXTENSIONS < I8MM {
            let signed = each!(I => veorq_u8(w[I], vdupq_n_u8(128)));
            return self.dot_small(acc, signed, x);
        }
        each!(I => usdot(acc[I], w[I], x[0]))
    }
    #[inline(always)]
    fn load_u8(self, x: &[u8; LANES]) -> Self::V {
        // SAFETY: the token proves the feature; the reference covers sixteen bytes.
        let wide = unsafe { widen_u8(vld1q_u8(x.as_ptr())) };
        each!(I => vcvtq_f32_u32(wide[I]))
    }
    #[inline(always)]
    fn barrier(self) {
        // SAFETY: no instruction at all.
        unsafe { asm!("", options(nostack, preserves_flags)) }
    }
}
