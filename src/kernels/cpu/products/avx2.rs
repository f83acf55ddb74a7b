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

/// Each of eight bytes four times, from the first eight on or from the others.
///
/// # Safety
///
/// AVX2 is there.
#[inline(always)]
unsafe fn four_times(bytes: &[u8; LANES], half: usize) -> __m256i {
    // SAFETY: the caller's promise, and a reference to sixteen bytes.
    unsafe {
        let all = _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast()));
        let spread = if half == 0 {
            _mm256_set_epi32(
                0x0707_0707,
                0x0606_0606,
                0x0505_0505,
                0x0404_0404,
                0x0303_0303,
                0x0202_0202,
                0x0101_0101,
                0,
            )
        } else {
            _mm256_set_epi32(
                0x0f0f_0f0f,
                0x0e0e_0e0e,
                0x0d0d_0d0d,
                0x0c0c_0c0c,
                0x0b0b_0b0b,
                0x0a0a_0a0a,
                0x0909_0909,
                0x0808_0808,
            )
        };
        _mm256_shuffle_epi8(all, spread)
    }
}

/// The points of the indices `first`, `first + 1`, `first + 4` and `first + 5`.
///
/// # Safety
///
/// AVX2 is there.
#[inline(always)]
unsafe fn four_points<const N: usize>(
    book: &[u64; N],
    index: &[u16; LANES],
    first: usize,
) -> __m256 {
    let a = book[usize::from(index[first]) % N].cast_signed();
    let b = book[usize::from(index[first + 1]) % N].cast_signed();
    let c = book[usize::from(index[first + 4]) % N].cast_signed();
    let d = book[usize::from(index[first + 5]) % N].cast_signed();
    // SAFETY: the caller's promise.
    unsafe { _mm256_castsi256_ps(_mm256_setr_epi64x(a, b, c, d)) }
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
    fn ints_of_bits(self, x: &[f32; LANES]) -> Self::Ints {
        both!(I => _mm256_loadu_si256(x.as_ptr().add(8 * I).cast()))
    }
    #[inline(always)]
    fn bits_of_ints(self, x: Self::Ints) -> [f32; LANES] {
        // SAFETY: both are sixty-four bytes of which every bit pattern is valid.
        unsafe { std::mem::transmute::<[__m256i; 2], [f32; LANES]>(x) }
    }
    #[inline(always)]
    fn ints_to_f32(self, x: Self::Ints) -> Self::V {
        both!(I => _mm256_cvtepi32_ps(x[I]))
    }
    #[inline(always)]
    fn add_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        both!(I => _mm256_add_epi32(a[I], b[I]))
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
    fn interleave_bytes(self, lower: Self::Bytes, upper: Self::Bytes) -> [Self::Bytes; 2] {
        [
            both!(I => _mm256_unpacklo_epi8(lower[I], upper[I])),
            both!(I => _mm256_unpackhi_epi8(lower[I], upper[I])),
        ]
    }
    #[inline(always)]
    fn points_of_eight<const N: usize>(
        self,
        book: &[u64; N],
        index: [u16; LANES],
    ) -> [Self::Bytes; 2] {
        // Of two registers the even words are taken, then the odd ones, in each half for itself.
        let points: [[__m256; 2]; 2] = both!(I => {
            [four_points(book, &index, 8 * I), four_points(book, &index, 8 * I + 2)]
        });
        [
            both!(I => _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(points[I][0], points[I][1]))),
            both!(I => _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(points[I][0], points[I][1]))),
        ]
    }
    #[inline(always)]
    fn points_of_four<const N: usize>(self, book: &[u32; N], index: [u16; LANES]) -> Self::Bytes {
        let points = index.map(|index| book[usize::from(index) % N].cast_signed());
        both!(I => {
            let p: &[i32; 8] = points[8 * I..].first_chunk().expect("sixteen points");
            _mm256_setr_epi32(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7])
        })
    }
    #[inline(always)]
    fn signed<const UPPER: bool>(
        self,
        magnitudes: Self::Bytes,
        signs: [u8; LANES],
        plus: u8,
    ) -> Self::Bytes {
        both!(I => {
            let bits: u32 = if UPPER { 0x8040_2010 } else { 0x0804_0201 };
            let bits = _mm256_set1_epi32(bits.cast_signed());
            let asked = _mm256_and_si256(four_times(&signs, I), bits);
            let negative = _mm256_cmpeq_epi8(asked, bits);
            let signed = _mm256_sub_epi8(_mm256_xor_si256(magnitudes[I], negative), negative);
            _mm256_add_epi8(signed, _mm256_set1_epi8(plus.cast_signed()))
        })
    }
    #[inline(always)]
    fn signs_of_seven(self, signs: [u8; LANES]) -> [u8; LANES] {
        // SAFETY: the token proves the feature.
        unsafe { super::signs_of_seven(signs) }
    }
    #[inline(always)]
    fn plus_each(self, x: Self::Bytes, plus: [u8; LANES]) -> Self::Bytes {
        both!(I => _mm256_add_epi8(x[I], four_times(&plus, I)))
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
