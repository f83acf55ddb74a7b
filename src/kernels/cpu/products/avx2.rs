//! Products in pairs of 256-bit registers, with or without the instruction made for bytes.

#[allow(clippy::wildcard_imports, reason = "the names are the instructions")]
use std::arch::x86_64::*;

use half::bf16;

use super::super::avx2::Avx2;
use super::super::lanes::{LANES, Lanes, Products};

/// Calls intrinsics that have no other condition than the CPU feature, once for each register.
macro_rules! both {
    ($i:ident => $call:expr) => {
        // SAFETY: the token proves the feature (`DOTS` that of VNNI); pointers come from references
        // to whole vectors.
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
            ]
        }
    };
}

/// Sums of four neighbouring products of eight bits; two of them fit sixteen.
///
/// # Safety
///
/// AVX2 is there, and AVX-VNNI where `DOTS`.
#[inline(always)]
unsafe fn dot<const DOTS: bool>(acc: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        if DOTS {
            return _mm256_dpbusd_avx_epi32(acc, unsigned, signed);
        }
        let pairs = _mm256_maddubs_epi16(unsigned, signed);
        _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}

impl<const DOTS: bool> Products for Avx2<DOTS> {
    type Pairs = [Self::V; 2];
    type Ints = [__m256i; 2];
    type Bytes = [__m256i; 2];
    const WIDE_OFFSET: i32 = if DOTS { 0 } else { 128 };
    const DOTS: bool = DOTS;
    const PAIRED: bool = false;

    #[inline(always)]
    fn load_pairs(self, w: &[[bf16; 2]; LANES]) -> Self::Pairs {
        self.widen_pairs(w)
    }
    #[inline(always)]
    fn widen_pairs(self, w: &[[bf16; 2]; LANES]) -> [Self::V; 2] {
        let words = both!(I => _mm256_loadu_si256(w.as_ptr().add(8 * I).cast()));
        [
            both!(I => _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words[I]))),
            both!(I => {
                let upper = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
                _mm256_castsi256_ps(_mm256_and_si256(words[I], upper))
            }),
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
        unsafe { [_mm256_set1_epi32(x); 2] }
    }
    #[inline(always)]
    fn ints_to_f32(self, x: Self::Ints) -> Self::V {
        both!(I => _mm256_cvtepi32_ps(x[I]))
    }
    #[inline(always)]
    fn load_bytes(self, x: &[u8; 4 * LANES]) -> Self::Bytes {
        both!(I => _mm256_loadu_si256(x.as_ptr().add(32 * I).cast()))
    }
    #[inline(always)]
    fn bytes_to_array(self, x: Self::Bytes) -> [u8; 4 * LANES] {
        // SAFETY: both are sixty-four bytes of which every bit pattern is valid.
        unsafe { std::mem::transmute::<[__m256i; 2], [u8; 4 * LANES]>(x) }
    }
    #[inline(always)]
    fn splat_bytes(self, x: [i8; 4]) -> Self::Bytes {
        self.splat_int(i32::from_ne_bytes(x.map(i8::cast_unsigned)))
    }
    #[inline(always)]
    fn low_nibbles(self, x: Self::Bytes) -> Self::Bytes {
        both!(I => _mm256_and_si256(x[I], _mm256_set1_epi8(15)))
    }
    #[inline(always)]
    fn high_nibbles(self, x: Self::Bytes) -> Self::Bytes {
        both!(I => _mm256_and_si256(_mm256_srli_epi16::<4>(x[I]), _mm256_set1_epi8(15)))
    }
    #[inline(always)]
    fn two_bits<const PLACE: usize>(self, x: Self::Bytes) -> Self::Bytes {
        both!(I => {
            let shifted = match PLACE {
                0 => _mm256_slli_epi16::<4>(x[I]),
                1 => _mm256_slli_epi16::<2>(x[I]),
                2 => x[I],
                _ => _mm256_srli_epi16::<2>(x[I]),
            };
            _mm256_and_si256(shifted, _mm256_set1_epi8(48))
        })
    }
    #[inline(always)]
    fn sixteen_where(self, bits: &[u8; 8]) -> Self::Bytes {
        let bits = bits.as_chunks::<4>().0;
        both!(I => {
            // Byte j of the register gets byte j / 8 of the bits, then bit j % 8 of it is asked.
            let all = _mm256_set1_epi32(i32::from_le_bytes(bits[I]));
            let spread = _mm256_set_epi64x(
                0x0303_0303_0303_0303,
                0x0202_0202_0202_0202,
                0x0101_0101_0101_0101,
                0,
            );
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64.cast_signed());
            let asked = _mm256_and_si256(_mm256_shuffle_epi8(all, spread), bit);
            _mm256_and_si256(_mm256_cmpeq_epi8(asked, bit), _mm256_set1_epi8(16))
        })
    }
    #[inline(always)]
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        both!(I => _mm256_or_si256(a[I], b[I]))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], x: Self::Bytes) -> Self::Bytes {
        both!(I => {
            let table = _mm_loadu_si128(table.as_ptr().cast());
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), x[I])
        })
    }
    #[inline(always)]
    fn dot_small(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints {
        both!(I => dot::<DOTS>(acc[I], w[I], x[I]))
    }
    #[inline(always)]
    fn dot_wide(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints {
        if DOTS {
            return both!(I => dot::<DOTS>(acc[I], w[I], x[I]));
        }
        both!(I => {
            let signed = _mm256_xor_si256(w[I], _mm256_set1_epi8(-128));
            dot::<DOTS>(acc[I], _mm256_abs_epi8(signed), _mm256_sign_epi8(x[I], signed))
        })
    }
    #[inline(always)]
    fn dot_together<const N: usize>(
        self,
        acc: Self::Ints,
        w: [Self::Bytes; N],
        x: [Self::Bytes; N],
    ) -> Self::Ints {
        both!(I => {
            if DOTS {
                let mut sums = acc[I];
                for n in 0..N {
                    sums = dot::<DOTS>(sums, w[n][I], x[n][I]);
                }
                sums
            } else {
                let mut pairs = _mm256_maddubs_epi16(w[0][I], x[0][I]);
                for n in 1..N {
                    pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(w[n][I], x[n][I]));
                }
                _mm256_add_epi32(acc[I], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
            }
        })
    }
    #[inline(always)]
    fn load_u8(self, x: &[u8; LANES]) -> Self::V {
        both!(I => {
            let eight = _mm_loadl_epi64(x.as_ptr().add(8 * I).cast());
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight))
        })
    }
}
