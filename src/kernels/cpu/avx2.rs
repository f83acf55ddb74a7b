//! Sixteen lanes in two 256-bit registers.

#[allow(clippy::wildcard_imports, reason = "the names are the instructions")]
use std::arch::x86_64::*;

use half::{bf16, f16};

use super::lanes::{Kernel, LANES, Lanes};

/// Proof that the CPU has AVX2, FMA and F16C; with `DOTS` also AVX-VNNI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2<const DOTS: bool>(());

impl<const DOTS: bool> Avx2<DOTS> {
    pub(super) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let dots = is_x86_feature_detected!("avxvnni");
        (found && (dots || !DOTS)).then_some(Self(()))
    }

    pub(super) fn run<K: Kernel>(self, kernel: K) {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn with_features<const DOTS: bool, K: Kernel>(lanes: Avx2<DOTS>, kernel: K) {
            kernel.run(lanes);
        }
        #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
        fn with_dots<const DOTS: bool, K: Kernel>(lanes: Avx2<DOTS>, kernel: K) {
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

/// Calls intrinsics that have no other condition than the CPU feature.
macro_rules! cpu {
    ($call:expr) => {
        // SAFETY: the token proves the feature; pointers come from references to whole vectors.
        unsafe { $call }
    };
}

/// Eight bf16 at `from` as f32.
///
/// # Safety
///
/// AVX2 is there and eight elements are readable.
#[inline(always)]
unsafe fn widen_bf16(from: *const bf16) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }
}

/// Eight f32 as bf16, ties to even.
///
/// # Safety
///
/// AVX2 is there.
#[inline(always)]
unsafe fn narrow_bf16(v: __m256) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe {
        let bits = _mm256_castps_si256(v);
        let high = _mm256_srli_epi32::<16>(bits);
        let odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
        let half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
        let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half));
        // Rounding could carry a NaN over to infinity: it is cut off and made quiet instead.
        let quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
        let words = _mm256_blendv_epi8(rounded, quiet, nan);
        _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words))
    }
}

impl<const DOTS: bool> Lanes for Avx2<DOTS> {
    type V = [__m256; 2];
    const WIDE: bool = false;

    fn call<K: Kernel>(self, part: K) {
        self.run(part);
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        cpu!([_mm256_set1_ps(x); 2])
    }
    #[inline(always)]
    fn load(self, x: &[f32; LANES]) -> Self::V {
        cpu!([_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))])
    }
    #[inline(always)]
    fn load_bf16(self, x: &[bf16; LANES]) -> Self::V {
        cpu!([widen_bf16(x.as_ptr()), widen_bf16(x.as_ptr().add(8))])
    }
    #[inline(always)]
    fn load_f16(self, x: &[f16; LANES]) -> Self::V {
        cpu!([
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().add(8).cast())),
        ])
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; LANES]) -> Self::V {
        cpu!({
            let all = _mm_loadu_si128(x.as_ptr().cast());
            let high = _mm_unpackhi_epi64(all, all);
            [
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(all)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high)),
            ]
        })
    }
    #[inline(always)]
    fn narrow_bf16(self, v: Self::V) -> [bf16; LANES] {
        let mut out = [bf16::ZERO; LANES];
        cpu!({
            _mm_storeu_si128(out.as_mut_ptr().cast(), narrow_bf16(v[0]));
            _mm_storeu_si128(out.as_mut_ptr().add(8).cast(), narrow_bf16(v[1]));
        });
        out
    }
    #[inline(always)]
    fn narrow_f16(self, v: Self::V) -> [f16; LANES] {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
        let mut out = [f16::ZERO; LANES];
        cpu!({
            _mm_storeu_si128(out.as_mut_ptr().cast(), _mm256_cvtps_ph::<NEAREST>(v[0]));
            _mm_storeu_si128(out.as_mut_ptr().add(8).cast(), _mm256_cvtps_ph::<NEAREST>(v[1]));
        });
        out
    }
    #[inline(always)]
    fn narrow_i8(self, v: Self::V) -> [i8; LANES] {
        let mut out = [0; LANES];
        cpu!({
            let (low, high) = (_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1]));
            // Packing works inside 128-bit lanes: the middle quarters come out swapped.
            let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high));
            let bytes = _mm_packs_epi16(
                _mm256_castsi256_si128(packed),
                _mm256_extracti128_si256::<1>(packed),
            );
            _mm_storeu_si128(out.as_mut_ptr().cast(), bytes);
        });
        out
    }
    #[inline(always)]
    unsafe fn store_at(self, v: Self::V, out: *mut f32) {
        cpu!({
            _mm256_storeu_ps(out, v[0]);
            _mm256_storeu_ps(out.add(8), v[1]);
        });
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        cpu!([_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        cpu!([_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        cpu!([_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        cpu!([_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        cpu!([_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])])
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        cpu!([_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        cpu!([_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        cpu!([_mm256_round_ps::<NEAREST>(a[0]), _mm256_round_ps::<NEAREST>(a[1])])
    }
    #[inline(always)]
    fn pow2(self, n: Self::V) -> Self::V {
        cpu!({
            let bias = _mm256_set1_epi32(127);
            let low = _mm256_add_epi32(_mm256_cvtps_epi32(n[0]), bias);
            let high = _mm256_add_epi32(_mm256_cvtps_epi32(n[1]), bias);
            [
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(high)),
            ]
        })
    }
    #[inline(always)]
    fn zero_below(self, v: Self::V, x: Self::V, bound: Self::V) -> Self::V {
        cpu!([
            _mm256_and_ps(v[0], _mm256_cmp_ps::<_CMP_NLT_UQ>(x[0], bound[0])),
            _mm256_and_ps(v[1], _mm256_cmp_ps::<_CMP_NLT_UQ>(x[1], bound[1])),
        ])
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
            let by8 = _mm256_add_ps(v[0], v[1]);
            let by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps::<1>(by8));
            let by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
            _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)))
        })
    }
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        cpu!({
            let by8 = _mm256_max_ps(v[0], v[1]);
            let by4 = _mm_max_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps::<1>(by8));
            let by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
            _mm_cvtss_f32(_mm_max_ss(by2, _mm_movehdup_ps(by2)))
        })
    }
}
