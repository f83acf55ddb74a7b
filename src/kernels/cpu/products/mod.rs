//! What packed products need of a level besides sixteen f32 lanes: pairs of bf16, groups of four
//! bytes, and sums of their products lane by lane.
//!
//! Weights lie with sixteen columns along the lanes, so a lane is one output element and its chain
//! of additions runs along K, the same in every tile. Integer sums are exact on every level.

use half::bf16;

use super::{LANES, Lanes};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(test)]
mod tests;

/// Sixteen columns times a few elements of K.
pub(in crate::kernels) trait Products: Lanes {
    /// Two bf16 in each lane.
    type Pairs: Copy;
    /// One i32 in each lane.
    type Ints: Copy;
    /// Four bytes in each lane.
    type Bytes: Copy;
    /// What [`Products::dot_wide`] has taken off each weight.
    const WIDE_OFFSET: i32;

    fn load_pairs(self, w: &[[bf16; 2]; LANES]) -> Self::Pairs;
    fn splat_pair(self, x: [bf16; 2]) -> Self::Pairs;
    /// `acc + w[0] * x[0] + w[1] * x[1]`, the order of the two being the level's own.
    fn dot_pairs(self, acc: Self::V, w: Self::Pairs, x: Self::Pairs) -> Self::V;

    fn splat_int(self, x: i32) -> Self::Ints;
    fn ints_to_f32(self, x: Self::Ints) -> Self::V;
    fn load_bytes(self, x: &[u8; 4 * LANES]) -> Self::Bytes;
    fn bytes_to_array(self, x: Self::Bytes) -> [u8; 4 * LANES];
    /// The same four bytes in each lane.
    fn splat_bytes(self, x: [i8; 4]) -> Self::Bytes;
    fn low_nibbles(self, x: Self::Bytes) -> Self::Bytes;
    fn high_nibbles(self, x: Self::Bytes) -> Self::Bytes;
    /// Bits `2 * PLACE` and `2 * PLACE + 1` of each byte, as 0, 16, 32 or 48.
    fn two_bits<const PLACE: usize>(self, x: Self::Bytes) -> Self::Bytes;
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as the other loads")]
    /// 16 in byte `i` where bit `i` is set, else 0.
    fn sixteen_where(self, bits: &[u8; 8]) -> Self::Bytes;
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// `acc` plus the products of unsigned weights of at most 127 with signed `x`.
    fn dot_small(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints;
    /// `acc` plus the products of unsigned weights, less `WIDE_OFFSET`, with signed `x` from -127.
    fn dot_wide(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints;

    fn load_u8(self, x: &[u8; LANES]) -> Self::V {
        self.load(&x.map(f32::from))
    }
    /// Keeps the compiler from moving loads of later steps up, where they would spill a tile.
    #[inline(always)]
    fn barrier(self) {}
}
