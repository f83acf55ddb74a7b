//! Products in four 128-bit registers.

#![allow(unused_unsafe, reason = "where NEON is part of the target its intrinsics are safe")]

#[allow(clippy::wildcard_imports, reason = "the names are the instructions")]
use std::arch::aarch64::*;

use half::bf16;

use super::super::lanes::{LANES, Lanes, Products};
use super::super::neon::Neon;

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

/// Sums of four neighbouring products of eight signed bits.
///
/// # Safety
///
/// NEON is there.
#[inline(always)]
unsafe fn dot(acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: the caller's promise.
    unsafe {
        let low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
        let high = vpaddlq_s16(vmull_s8(vget_high_s8(w), vget_high_s8(x)));
        vaddq_s32(acc, vpaddq_s32(low, high))
    }
}

impl Products for Neon {
    type Pairs = [Self::V; 2];
    type Ints = [int32x4_t; 4];
    type Bytes = [uint8x16_t; 4];
    const WIDE_OFFSET: i32 = 128;

    #[inline(always)]
    fn load_pairs(self, w: &[[bf16; 2]; LANES]) -> Self::Pairs {
        let words: [uint32x4_t; 4] = each!(I => {
            vreinterpretq_u32_u16(vld1q_u16(w.as_ptr().cast::<u16>().add(8 * I)))
        });
        [
            each!(I => vreinterpretq_f32_u32(vshlq_n_u32::<16>(words[I]))),
            each!(I => vreinterpretq_f32_u32(vandq_u32(words[I], vdupq_n_u32(0xffff_0000)))),
        ]
    }
    #[inline(always)]
    fn splat_pair(self, x: [bf16; 2]) -> Self::Pairs {
        [self.splat(x[0].to_f32()), self.splat(x[1].to_f32())]
    }
    #[inline(always)]
    fn dot_pairs(self, acc: Self::V, w: Self::Pairs, x: Self::Pairs) -> Self::V {
        self.mul_add(w[1], x[1], self.mul_add(w[0], x[0], acc))
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Ints {
        // SAFETY: the token proves the feature.
        unsafe { [vdupq_n_s32(x); 4] }
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
        unsafe { [vreinterpretq_u8_u32(vdupq_n_u32(word)); 4] }
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
        each!(I => {
            let all = vcombine_u8(vdup_n_u8(bits[2 * I]), vdup_n_u8(bits[2 * I + 1]));
            let bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
            vandq_u8(vtstq_u8(all, bit), vdupq_n_u8(16))
        })
    }
    #[inline(always)]
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        each!(I => vorrq_u8(a[I], b[I]))
    }
    #[inline(always)]
    fn dot_small(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints {
        each!(I => dot(acc[I], vreinterpretq_s8_u8(w[I]), vreinterpretq_s8_u8(x[I])))
    }
    #[inline(always)]
    fn dot_wide(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints {
        each!(I => {
            let signed = veorq_u8(w[I], vdupq_n_u8(128));
            dot(acc[I], vreinterpretq_s8_u8(signed), vreinterpretq_s8_u8(x[I]))
        })
    }
}
