//! Products in plain Rust.

use half::bf16;

use super::super::lanes::{LANES, Lanes, Products};
use super::super::scalar::Scalar;

type Bytes = [u8; 4 * LANES];

#[inline(always)]
fn dot(acc: [i32; LANES], w: Bytes, x: Bytes) -> [i32; LANES] {
    let mut sums = acc;
    for (lane, sum) in sums.iter_mut().enumerate() {
        for i in 4 * lane..4 * lane + 4 {
            *sum = sum.wrapping_add(i32::from(w[i]) * i32::from(x[i].cast_signed()));
        }
    }
    sums
}

impl Products for Scalar {
    type Pairs = [[f32; LANES]; 2];
    type Ints = [i32; LANES];
    type Bytes = Bytes;
    const WIDE_OFFSET: i32 = 0;
    const PAIRED: bool = true;

    #[inline(always)]
    fn load_pairs(self, w: &[[bf16; 2]; LANES]) -> Self::Pairs {
        self.widen_pairs(w)
    }
    #[inline(always)]
    fn splat_pair(self, x: [bf16; 2]) -> Self::Pairs {
        x.map(|x| [x.to_f32(); LANES])
    }
    #[inline(always)]
    fn dot_pairs(self, acc: Self::V, w: Self::Pairs, x: Self::Pairs) -> Self::V {
        self.mul_add(w[1], x[1], self.mul_add(w[0], x[0], acc))
    }
    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::Ints {
        [x; LANES]
    }
    #[inline(always)]
    fn ints_of_bits(self, x: &[f32; LANES]) -> Self::Ints {
        x.map(|x| x.to_bits().cast_signed())
    }
    #[inline(always)]
    fn bits_of_ints(self, x: Self::Ints) -> [f32; LANES] {
        x.map(|x| f32::from_bits(x.cast_unsigned()))
    }
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "rounded to nearest, as every level does")]
    fn ints_to_f32(self, x: Self::Ints) -> Self::V {
        x.map(|x| x as f32)
    }
    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
    fn add_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints {
        std::array::from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn load_bytes(self, x: &Bytes) -> Self::Bytes {
        *x
    }
    #[inline(always)]
    fn bytes_to_array(self, x: Self::Bytes) -> [u8; 4 * LANES] {
        x
    }
    #[inline(always)]
    fn splat_bytes(self, x: [i8; 4]) -> Self::Bytes {
        std::array::from_fn(|i| x[i % 4].cast_unsigned())
    }
    #[inline(always)]
    fn low_nibbles(self, x: Self::Bytes) -> Self::Bytes {
        x.map(|x| x & 15)
    }
    #[inline(always)]
    fn high_nibbles(self, x: Self::Bytes) -> Self::Bytes {
        x.map(|x| x >> 4)
    }
    #[inline(always)]
    fn two_bits<const PLACE: usize>(self, x: Self::Bytes) -> Self::Bytes {
        x.map(|x| (x >> (2 * PLACE) & 3) << 4)
    }
    #[inline(always)]
    fn sixteen_where(self, bits: &[u8; 8]) -> Self::Bytes {
        std::array::from_fn(|i| (bits[i / 8] >> (i % 8) & 1) << 4)
    }
    #[inline(always)]
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        std::array::from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn dot_small(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints {
        dot(acc, w, x)
    }
    #[inline(always)]
    fn dot_wide(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints {
        dot(acc, w, x)
    }
}
