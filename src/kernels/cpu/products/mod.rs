//! Packed products on each level, see [`Products`](super::lanes::Products).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
use super::lanes::LANES;

/// [`Products::signs_of_seven`](super::lanes::Products::signs_of_seven) of every level of x86-64 that has registers
/// of 256 bits.
///
/// # Safety
///
/// AVX2 is there.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
unsafe fn signs_of_seven(signs: [u8; LANES]) -> [u8; LANES] {
    #[allow(clippy::wildcard_imports, reason = "the names are the instructions")]
    use std::arch::x86_64::*;

    // SAFETY: the caller's promise; both types are sixteen bytes of which every bit pattern is valid.
    unsafe {
        let seven =
            _mm_and_si128(std::mem::transmute::<[u8; LANES], __m128i>(signs), _mm_set1_epi8(127));
        // The parity of both halves of a byte, in its highest bit.
        let halves = _mm_xor_si128(seven, _mm_srli_epi16::<4>(seven));
        let odd =
            _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0);
        let eighth = _mm_shuffle_epi8(odd, _mm_and_si128(halves, _mm_set1_epi8(15)));
        std::mem::transmute::<__m128i, [u8; LANES]>(_mm_or_si128(seven, eighth))
    }
}
