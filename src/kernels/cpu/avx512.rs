//! Sixteen lanes in one 512-bit register.

#[allow(clippy::wildcard_imports, reason = "the names are the instructions")]
use std::arch::x86_64::*;

use half::{bf16, f16};

use super::lanes::{Kernel, LANES, Lanes};

/// Proof that the CPU has AVX-512 F, BW, DQ and VL; with `DOTS` also VNNI and BF16.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512<const DOTS: bool>(());

impl<const DOTS: bool> Avx512<DOTS> {
    pub(super) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma");
        let dots = is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512bf16");
        (found && (dots || !DOTS)).then_some(Self(()))
    }
}

impl<const DOTS: bool> Avx512<DOTS> {
    pub(super) fn run<K: Kernel>(self, kernel: K) {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
        fn with_features<const DOTS: bool, K: Kernel>(lanes: Avx512<DOTS>, kernel: K) {
            kernel.run(lanes);
        }
        #[target_feature(
            enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma"
        )]
        fn with_dots<const DOTS: bool, K: Kernel>(lanes: Avx512<DOTS>, kernel: K) {
            kernel.run(lanes);
        }
        if DOTS {
            // SAFETY: `self` was made by `detect`, so the CPU has these features.
            unsafe { with_dots(self, kernel) }
        } else {
            // SAFETY: as above.
            unsafe { with_features(self, kernel) }
        }
    }
}

/// Calls an intrinsic that has no other condition than the CPU feature.
macro_rules! cpu {
    ($call:expr) => {
        // SAFETY: the token proves the feature; pointers come from references to whole vectors.
        unsafe { $call }
    };
}

impl<const DOTS: bool> Lanes for Avx512<DOTS> {
    type V = __m512;
    const WIDE: bool = true;

    fn call<K: Kernel>(self, part: K) {
        self.run(part);
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        cpu!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        cpu!(_mm512_loadu_ps(x.as_ptr()))
    }
    #[inline(always)]
    fn load_bf16(self, x: &[bf16; LANES]) -> Self::V {
        cpu!({
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        })
    }
    #[inline(always)]
    fn load_f16(self, x: &[f16; LANES]) -> Self::V {
        cpu!(_mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::V {
        cpu!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast()))))
    }
    #[inline(always)]
    fn narrow_bf16(self, v: Self::V) -> [bf16; LANES] {
        let mut out = [bf16::ZERO; LANES];
        cpu!({
            let bits = _mm512_castps_si512(v);
            let high = _mm512_srli_epi32::<16>(bits);
            let odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
            let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half));
            // Rounding could carry a NaN over to infinity: it is cut off and made quiet instead.
            let quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
            let narrow = _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet));
            _mm256_storeu_si256(out.as_mut_ptr().cast(), narrow);
        });
        out
    }
    #[inline(always)]
    fn narrow_normal_bf16(self, v: Self::V) -> [bf16; LANES] {
        if !DOTS {
            return self.narrow_bf16(v);
        }
        let mut out = [bf16::ZERO; LANES];
        // SAFETY: the token proves BF16 where there are dots; sixteen bf16 are as large as the register.
        unsafe { out.as_mut_ptr().cast::<__m256bh>().write_unaligned(_mm512_cvtneps_pbh(v)) };
        out
    }
    #[inline(always)]
    fn narrow_f16(self, v: Self::V) -> [f16; LANES] {
        let mut out = [f16::ZERO; LANES];
        cpu!({
            let narrow = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), narrow);
        });
        out
    }
    #[inline(always)]
    fn narrow_i8(self, v: Self::V) -> [i8; LANES] {
        let mut out = [0; LANES];
        cpu!({
            let narrow = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v));
            _mm_storeu_si128(out.as_mut_ptr().cast(), narrow);
        });
        out
    }
    #[inline(always)]
    unsafe fn store_at(self, v: Self::V, out: *mut f32) {
        cpu!(_mm512_storeu_ps(out, v));
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        cpu!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        cpu!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        cpu!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        cpu!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        cpu!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        cpu!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        cpu!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        cpu!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }
    #[inline(always)]
    fn pow2(self, n: Self::V) -> Self::V {
        cpu!({
            let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        })
    }
    #[inline(always)]
    fn times_pow2(self, v: Self::V, n: Self::V) -> Self::V {
        cpu!(_mm512_scalef_ps(v, n))
    }
    #[inline(always)]
    fn zero_below(self, v: Self::V, x: Self::V, bound: Self::V) -> Self::V {
        cpu!(_mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, bound), v))
    }
    #[inline(always)]
    fn prefetch<T>(self, at: *const T) {
        cpu!(_mm_prefetch::<_MM_HINT_T0>(at.cast()));
    }
    #[inline(always)]
    fn prefetch_once<T>(self, at: *const T) {
        cpu!(_mm_prefetch::<_MM_HINT_NTA>(at.cast()));
    }
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        cpu!({
            let by8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps::<1>(by8));
            let by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
            _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)))
        })
    }
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        cpu!(_mm512_reduce_max_ps(v))
    }
    #[inline(always)]
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES] {
        cpu!({
            // Pairs of rows, then quads: 4x4 transposes inside each 128-bit lane.
            let mut pairs = rows;
            for i in 0..8 {
                pairs[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
                pairs[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
            }
            let mut quads = rows;
            for i in 0..4 {
                quads[4 * i] = _mm512_shuffle_ps::<0x44>(pairs[4 * i], pairs[4 * i + 2]);
                quads[4 * i + 1] = _mm512_shuffle_ps::<0xee>(pairs[4 * i], pairs[4 * i + 2]);
                quads[4 * i + 2] = _mm512_shuffle_ps::<0x44>(pairs[4 * i + 1], pairs[4 * i + 3]);
                quads[4 * i + 3] = _mm512_shuffle_ps::<0xee>(pairs[4 * i + 1], pairs[4 * i + 3]);
            }
            // Then the 128-bit lanes themselves, as a 4x4 transpose.
            let mut out = rows;
            for c in 0..4 {
                let even_low = _mm512_shuffle_f32x4::<0x88>(quads[c], quads[4 + c]);
                let odd_low = _mm512_shuffle_f32x4::<0xdd>(quads[c], quads[4 + c]);
                let even_high = _mm512_shuffle_f32x4::<0x88>(quads[8 + c], quads[12 + c]);
                let odd_high = _mm512_shuffle_f32x4::<0xdd>(quads[8 + c], quads[12 + c]);
                out[c] = _mm512_shuffle_f32x4::<0x88>(even_low, even_high);
                out[8 + c] = _mm512_shuffle_f32x4::<0xdd>(even_low, even_high);
                out[4 + c] = _mm512_shuffle_f32x4::<0x88>(odd_low, odd_high);
                out[12 + c] = _mm512_shuffle_f32x4::<0xdd>(odd_low, odd_high);
            }
            out
        })
    }
}
