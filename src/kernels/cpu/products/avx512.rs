//! Products in 512-bit registers, with or without the instructions made for them.

#[allow(clippy::wildcard_imports, reason = "the names are the instructions")]
use std::arch::x86_64::*;

use half::bf16;

use super::super::avx512::Avx512;
use super::super::lanes::{LANES, Products};

/// Calls an intrinsic that has no other condition than the CPU feature.
macro_rules! cpu {
    ($call:expr) => {
        // SAFETY: the token proves the feature (`DOTS` those of VNNI and BF16); pointers come from
        // references to whole vectors.
        unsafe { $call }
    };
}

/// Sixteen indices into a book of `N` points.
///
/// # Safety
///
/// AVX-512 is there.
#[inline(always)]
unsafe fn wide_index<const N: usize>(index: [u16; LANES]) -> __m512i {
    const { assert!(N.is_power_of_two()) }
    let mask = i32::try_from(N - 1).expect("books have at most 2048 points");
    // SAFETY: the caller's promise, and a reference to thirty-two bytes.
    unsafe {
        let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(index.as_ptr().cast()));
        _mm512_and_si512(words, _mm512_set1_epi32(mask))
    }
}

/// Each of sixteen bytes four times.
///
/// # Safety
///
/// AVX-512 with bytes is there.
#[inline(always)]
unsafe fn four_times(bytes: &[u8; LANES]) -> __m512i {
    // SAFETY: the caller's promise, and a reference to sixteen bytes.
    unsafe {
        let words = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.as_ptr().cast()));
        let spread = _mm_set_epi32(0x0c0c_0c0c, 0x0808_0808, 0x0404_0404, 0);
        _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(spread))
    }
}

impl<const DOTS: bool> Products for Avx512<DOTS> {
    type Pairs = __m512i;
    type Ints = __m512i;
    type Bytes = __m512i;
    const WIDE_OFFSET: i32 = 0;
    const DOTS: bool = DOTS;
    const PAIRED: bool = DOTS;

    #[inline(always)]
    fn load_pairs(self, w: &[[bf16; 2]; LANES]) -> Self::Pairs {
        cpu!(_mm512_loadu_si512(w.as_ptr().cast()))
    }
    #[inline(always)]
    fn interleave(
        self,
        first: &[bf16; 2 * LANES],
        second: &[bf16; 2 * LANES],
    ) -> [[[bf16; 2]; LANES]; 2] {
        let mut pairs = [[[bf16::ZERO; 2]; LANES]; 2];
        cpu!({
            let from = [first, second].map(|row| _mm512_loadu_si512(row.as_ptr().cast()));
            // 16-bit words 0, 32, 1, 33, ... of both rows, and those from 16 on.
            let (low, step) = (_mm512_set1_epi32(0x20_0000), _mm512_set1_epi32(0x1_0001));
            let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let low = _mm512_add_epi32(low, _mm512_mullo_epi32(lanes, step));
            let high = _mm512_add_epi32(low, _mm512_set1_epi32(0x10_0010));
            for (pairs, index) in pairs.iter_mut().zip([low, high]) {
                let mixed = _mm512_permutex2var_epi16(from[0], index, from[1]);
                _mm512_storeu_si512(pairs.as_mut_ptr().cast(), mixed);
            }
        });
        pairs
    }
    #[inline(always)]
    fn splat_pair(self, x: [bf16; 2]) -> Self::Pairs {
        let word = u32::from(x[0].to_bits()) | u32::from(x[1].to_bits()) << 16;
        cpu!(_mm512_set1_epi32(word.cast_signed()))
    }
    #[inline(always)]
    fn dot_pairs(self, acc: Self::V, w: Self::Pairs, x: Self::Pairs) -> Self::V {
        if DOTS {
            // SAFETY: `DOTS` proves BF16; the types differ in name only.
            return unsafe {
                let (w, x) =
                    std::mem::transmute::<(__m512i, __m512i), (__m512bh, __m512bh)>((w, x));
                _mm512_dpbf16_ps(acc, w, x)
            };
        }
        cpu!({
            let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
            let even_w = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(w));
            let even_x = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(x));
            let odd_w = _mm512_castsi512_ps(_mm512_and_si512(w, upper));
            let odd_x = _mm512_castsi512_ps(_mm512_and_si512(x, upper));
            _mm512_fmadd_ps(odd_w, odd_x, _mm512_fmadd_ps(even_w, even_x, acc))
        })
    }
    #[inline(always)]
    fn widen_pairs(self, w: &[[bf16; 2]; LANES]) -> [Self::V; 2] {
        cpu!({
            let words = _mm512_loadu_si512(w.as_ptr().cast());
            let upper = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
            [
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)),
                _mm512_castsi512_ps(_mm512_and_si512(words, upper)),
            ]
        })
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Ints {
        cpu!(_mm512_set1_epi32(x))
    }
    #[inline(always)]
    fn ints_of_bits(self, x: &[f32; LANES]) -> Self::Ints {
        cpu!(_mm512_loadu_si512(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn bits_of_ints(self, x: Self::Ints) -> [f32; LANES] {
        // SAFETY: both are sixty-four bytes of which every bit pattern is valid.
        unsafe { std::mem::transmute::<__m512i, [f32; LANES]>(x) }
    }
    #[inline(always)]
    fn ints_to_f32(self, x: Self::Ints) -> Self::V {
        cpu!(_mm512_cvtepi32_ps(x))
    }
    #[inline(always)]
    fn add_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        cpu!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn load_bytes(self, x: &[u8; 4 * LANES]) -> Self::Bytes {
        cpu!(_mm512_loadu_si512(x.as_ptr().cast()))
    }
    #[inline(always)]
    fn bytes_to_array(self, x: Self::Bytes) -> [u8; 4 * LANES] {
        // SAFETY: both are sixty-four bytes of which every bit pattern is valid.
        unsafe { std::mem::transmute::<__m512i, [u8; 4 * LANES]>(x) }
    }
    #[inline(always)]
    fn splat_bytes(self, x: [i8; 4]) -> Self::Bytes {
        self.splat_int(i32::from_ne_bytes(x.map(i8::cast_unsigned)))
    }
    #[inline(always)]
    fn low_nibbles(self, x: Self::Bytes) -> Self::Bytes {
        cpu!(_mm512_and_si512(x, _mm512_set1_epi8(15)))
    }
    #[inline(always)]
    fn high_nibbles(self, x: Self::Bytes) -> Self::Bytes {
        cpu!(_mm512_and_si512(_mm512_srli_epi16::<4>(x), _mm512_set1_epi8(15)))
    }
    #[inline(always)]
    fn two_bits<const PLACE: usize>(self, x: Self::Bytes) -> Self::Bytes {
        cpu!({
            let shifted = match PLACE {
                0 => _mm512_slli_epi16::<4>(x),
                1 => _mm512_slli_epi16::<2>(x),
                2 => x,
                _ => _mm512_srli_epi16::<2>(x),
            };
            _mm512_and_si512(shifted, _mm512_set1_epi8(48))
        })
    }
    #[inline(always)]
    fn sixteen_where(self, bits: &[u8; 8]) -> Self::Bytes {
        cpu!(_mm512_maskz_mov_epi8(u64::from_le_bytes(*bits), _mm512_set1_epi8(16)))
    }
    #[inline(always)]
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        cpu!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], x: Self::Bytes) -> Self::Bytes {
        cpu!({
            let table = _mm_loadu_si128(table.as_ptr().cast());
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), x)
        })
    }
    #[inline(always)]
    fn interleave_bytes(self, lower: Self::Bytes, upper: Self::Bytes) -> [Self::Bytes; 2] {
        cpu!([_mm512_unpacklo_epi8(lower, upper), _mm512_unpackhi_epi8(lower, upper)])
    }
    #[inline(always)]
    fn points_of_eight<const N: usize>(
        self,
        book: &[u64; N],
        index: [u16; LANES],
    ) -> [Self::Bytes; 2] {
        // Of all points the even words are taken, then the odd ones.
        cpu!({
            let index = wide_index::<N>(index);
            let low = _mm512_castsi512_si256(index);
            let high = _mm512_extracti64x4_epi64::<1>(index);
            let first = _mm512_i32gather_epi64::<8>(low, book.as_ptr().cast());
            let second = _mm512_i32gather_epi64::<8>(high, book.as_ptr().cast());
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
            [even, odd].map(|words| _mm512_permutex2var_epi32(first, words, second))
        })
    }
    #[inline(always)]
    fn points_of_four<const N: usize>(self, book: &[u32; N], index: [u16; LANES]) -> Self::Bytes {
        cpu!(_mm512_i32gather_epi32::<4>(wide_index::<N>(index), book.as_ptr().cast()))
    }
    #[inline(always)]
    fn signed<const UPPER: bool>(
        self,
        magnitudes: Self::Bytes,
        signs: [u8; LANES],
        plus: u8,
    ) -> Self::Bytes {
        cpu!({
            let bits: u32 = if UPPER { 0x8040_2010 } else { 0x0804_0201 };
            let negative =
                _mm512_test_epi8_mask(four_times(&signs), _mm512_set1_epi32(bits.cast_signed()));
            let plus = _mm512_set1_epi8(plus.cast_signed());
            let sum = _mm512_add_epi8(plus, magnitudes);
            _mm512_mask_sub_epi8(sum, negative, plus, magnitudes)
        })
    }
    #[inline(always)]
    fn signs_of_seven(self, signs: [u8; LANES]) -> [u8; LANES] {
        // SAFETY: the token proves the feature.
        unsafe { super::signs_of_seven(signs) }
    }
    #[inline(always)]
    fn plus_each(self, x: Self::Bytes, plus: [u8; LANES]) -> Self::Bytes {
        cpu!(_mm512_add_epi8(x, four_times(&plus)))
    }
    #[inline(always)]
    fn dot_small(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints {
        if DOTS {
            return cpu!(_mm512_dpbusd_epi32(acc, w, x));
        }
        cpu!({
            let pairs = _mm512_maddubs_epi16(w, x);
            _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))
        })
    }
    #[inline(always)]
    fn dot_wide(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints {
        if DOTS {
            return cpu!(_mm512_dpbusd_epi32(acc, w, x));
        }
        cpu!({
            // Bytes at even and at odd places, each widened to sixteen bits.
            let even_w = _mm512_and_si512(w, _mm512_set1_epi16(0xff));
            let even_x = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(x));
            let even = _mm512_madd_epi16(even_w, even_x);
            let odd = _mm512_madd_epi16(_mm512_srli_epi16::<8>(w), _mm512_srai_epi16::<8>(x));
            _mm512_add_epi32(acc, _mm512_add_epi32(even, odd))
        })
    }
    #[inline(always)]
    fn dot_together<const N: usize>(
        self,
        acc: Self::Ints,
        w: [Self::Bytes; N],
        x: [Self::Bytes; N],
    ) -> Self::Ints {
        cpu!({
            if DOTS {
                let mut sums = acc;
                for n in 0..N {
                    sums = _mm512_dpbusd_epi32(sums, w[n], x[n]);
                }
                return sums;
            }
            let mut pairs = _mm512_maddubs_epi16(w[0], x[0]);
            for n in 1..N {
                pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16(w[n], x[n]));
            }
            _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))
        })
    }
    #[inline(always)]
    fn less(self, x: Self::Bytes, offset: u8) -> Self::Bytes {
        cpu!(_mm512_sub_epi8(x, _mm512_set1_epi8(offset.cast_signed())))
    }
    #[inline(always)]
    fn load_ints(self, x: &[i32; LANES]) -> Self::V {
        cpu!(_mm512_cvtepi32_ps(_mm512_loadu_si512(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_u8(self, x: &[u8; LANES]) -> Self::V {
        cpu!(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(x.as_ptr().cast()))))
    }
    #[inline(always)]
    fn barrier(self) {
        // SAFETY: no instruction at all.
        unsafe { std::arch::asm!("", options(nostack, preserves_flags)) }
    }
}
