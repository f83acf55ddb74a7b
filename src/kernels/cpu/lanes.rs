//! The vocabulary that kernels are written in: sixteen f32 lanes, what packed products need besides,
//! and the elements that memory holds.

use std::mem::MaybeUninit;

use half::{bf16, f16};
use sconce_blocks::codebooks::signs_of_seven;

/// f32 lanes of a vector, on every level.
pub(crate) const LANES: usize = 16;

/// Work that is compiled once per level. Mark `run` and all it calls `#[inline(always)]`, so that
/// the level's instructions reach it, and keep closures out of its loops.
pub(crate) trait Kernel {
    fn run<L: Products>(self, lanes: L);
}

/// What a level can do with sixteen f32 lanes.
pub(crate) trait Lanes: Copy {
    /// Sixteen lanes.
    type V: Copy;
    /// Rows of the left side in a product tile: as many as the registers hold.
    const WIDE: bool;

    /// Runs a part of a kernel as a function of its own, with this level's instructions: for loops
    /// that many places use, which would be compiled for each of them otherwise.
    fn call<K: Kernel>(self, part: K);
    fn splat(self, x: f32) -> Self::V;
    fn load(self, x: &[f32; LANES]) -> Self::V;
    fn load_bf16(self, x: &[bf16; LANES]) -> Self::V;
    fn load_f16(self, x: &[f16; LANES]) -> Self::V;
    fn load_i8(self, x: &[i8; LANES]) -> Self::V;
    /// Rounds to bf16, ties to even; NaN stays NaN.
    fn narrow_bf16(self, v: Self::V) -> [bf16; LANES];
    /// As [`Lanes::narrow_bf16`], but numbers below the smallest normal one may become 0.
    #[inline(always)]
    fn narrow_normal_bf16(self, v: Self::V) -> [bf16; LANES] {
        self.narrow_bf16(v)
    }
    /// Rounds to f16, ties to even; NaN stays NaN.
    fn narrow_f16(self, v: Self::V) -> [f16; LANES];
    /// Rounds to the nearest integer, ties to even, within -128..=127; any integer for NaN.
    fn narrow_i8(self, v: Self::V) -> [i8; LANES];
    /// # Safety
    ///
    /// Sixteen floats are writable at `out`.
    unsafe fn store_at(self, v: Self::V, out: *mut f32);
    #[inline(always)]
    fn store(self, v: Self::V, out: &mut [f32; LANES]) {
        // SAFETY: the reference covers sixteen floats.
        unsafe { self.store_at(v, out.as_mut_ptr()) }
    }
    /// Stores a vector to uninitialized memory.
    #[inline(always)]
    fn write(self, v: Self::V, out: &mut [MaybeUninit<f32>; LANES]) {
        // SAFETY: the reference covers sixteen floats, and a float may be written to each.
        unsafe { self.store_at(v, out.as_mut_ptr().cast()) }
    }
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger one; `b` where either is NaN, on x86, and NaN elsewhere or `b`.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// Rounds to the nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// 2 to the power of integers in -126..=127.
    fn pow2(self, n: Self::V) -> Self::V;
    /// `v` times 2 to the power of integers in -126..=127.
    #[inline(always)]
    fn times_pow2(self, v: Self::V, n: Self::V) -> Self::V {
        self.mul(v, self.pow2(n))
    }
    /// `v`, but 0 where `x` is less than `bound`.
    fn zero_below(self, v: Self::V, x: Self::V, bound: Self::V) -> Self::V;
    /// Asks for the cache line at `at` to be brought near; any address will do.
    #[inline(always)]
    fn prefetch<T>(self, _at: *const T) {}
    /// As [`Self::prefetch`], of what is read once: only the nearest cache takes it.
    #[inline(always)]
    fn prefetch_once<T>(self, at: *const T) {
        self.prefetch(at);
    }
    /// Sum of all lanes: `i` and `i + 8` first, then 4, 2, 1 apart.
    fn sum(self, v: Self::V) -> f32;
    /// Largest lane.
    fn largest(self, v: Self::V) -> f32;
    /// Lane `i` of vector `j` becomes lane `j` of vector `i`.
    #[inline(always)]
    fn transpose(self, rows: [Self::V; LANES]) -> [Self::V; LANES] {
        let mut from = [[0.0f32; LANES]; LANES];
        for (row, out) in rows.iter().zip(&mut from) {
            self.store(*row, out);
        }
        let mut columns = rows;
        for (j, column) in columns.iter_mut().enumerate() {
            let mut lanes = [0.0; LANES];
            for (lane, row) in lanes.iter_mut().zip(&from) {
                *lane = row[j];
            }
            *column = self.load(&lanes);
        }
        columns
    }
}

/// What packed products need of a level besides sixteen f32 lanes: pairs of bf16, groups of four
/// bytes, and sums of their products lane by lane.
///
/// Weights lie with sixteen columns along the lanes, so a lane is one output element and its chain
/// of additions runs along K, the same in every tile. Integer sums are exact on every level.
pub(crate) trait Products: Lanes {
    /// Two bf16 in each lane.
    type Pairs: Copy;
    /// One i32 in each lane.
    type Ints: Copy;
    /// Four bytes in each lane.
    type Bytes: Copy;
    /// What [`Products::dot_wide`] subtracts from each weight.
    const WIDE_OFFSET: i32;
    /// Whether four products of bytes are added in one step, and not pairs of them in sixteen bits.
    const DOTS: bool = true;

    fn load_pairs(self, w: &[[bf16; 2]; LANES]) -> Self::Pairs;
    /// The same pair for each lane, as the right side of [`Products::dot_pairs`].
    fn splat_pair(self, x: [bf16; 2]) -> Self::Pairs;
    /// `acc + w[0] * x[0] + w[1] * x[1]`, the order of the two being the level's own.
    fn dot_pairs(self, acc: Self::V, w: Self::Pairs, x: Self::Pairs) -> Self::V;

    /// Whether bf16 are multiplied in pairs wherever they can be: where [`Products::dot_pairs`] is an
    /// instruction of the level.
    const PAIRED: bool;

    /// Two rows side by side: pair `i` is `[first[i], second[i]]`.
    #[inline(always)]
    fn interleave(
        self,
        first: &[bf16; 2 * LANES],
        second: &[bf16; 2 * LANES],
    ) -> [[[bf16; 2]; LANES]; 2] {
        let mut pairs = [[[bf16::ZERO; 2]; LANES]; 2];
        for (pair, each) in pairs.as_flattened_mut().iter_mut().zip(first.iter().zip(second)) {
            *pair = [*each.0, *each.1];
        }
        pairs
    }

    /// First and second of the two bf16 in each lane, as f32.
    #[inline(always)]
    fn widen_pairs(self, w: &[[bf16; 2]; LANES]) -> [Self::V; 2] {
        [self.load_bf16(&w.map(|pair| pair[0])), self.load_bf16(&w.map(|pair| pair[1]))]
    }

    fn splat_int(self, x: i32) -> Self::Ints;
    /// Integers of which a vector of floats holds the bits.
    fn ints_of_bits(self, x: &[f32; LANES]) -> Self::Ints;
    /// Floats with the bits of integers.
    fn bits_of_ints(self, x: Self::Ints) -> [f32; LANES];
    fn ints_to_f32(self, x: Self::Ints) -> Self::V;
    /// Modulo 2^32.
    #[cfg(target_arch = "x86_64")]
    fn add_ints(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;
    fn load_bytes(self, x: &[u8; 4 * LANES]) -> Self::Bytes;
    fn bytes_to_array(self, x: Self::Bytes) -> [u8; 4 * LANES];
    /// The same four bytes for each lane, as the right side of a product.
    fn splat_bytes(self, x: [i8; 4]) -> Self::Bytes;
    fn low_nibbles(self, x: Self::Bytes) -> Self::Bytes;
    fn high_nibbles(self, x: Self::Bytes) -> Self::Bytes;
    /// Bits `2 * PLACE` and `2 * PLACE + 1` of each byte, as 0, 16, 32 or 48.
    fn two_bits<const PLACE: usize>(self, x: Self::Bytes) -> Self::Bytes;
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as the other loads")]
    /// 16 in byte `i` where bit `i` is set, else 0.
    fn sixteen_where(self, bits: &[u8; 8]) -> Self::Bytes;
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// What `table` has for each byte, all of which are below sixteen.
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], x: Self::Bytes) -> Self::Bytes {
        self.load_bytes(&self.bytes_to_array(x).map(|index| table[usize::from(index & 15)]))
    }
    /// Words of two bytes, a lower and an upper one: of each sixteen bytes those of the first eight, then those of the
    /// others.
    #[inline(always)]
    fn interleave_bytes(self, lower: Self::Bytes, upper: Self::Bytes) -> [Self::Bytes; 2] {
        let [lower, upper] = [lower, upper].map(|bytes| self.bytes_to_array(bytes));
        [0, 8].map(|first| {
            let mut words = [0; 4 * LANES];
            for (i, word) in words.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let byte = i / 8 * 16 + first + i % 8;
                *word = [lower[byte], upper[byte]];
            }
            self.load_bytes(&words)
        })
    }
    /// Sixteen points of eight numbers, a byte each: the first four of each, then the others.
    #[inline(always)]
    fn points_of_eight<const N: usize>(
        self,
        book: &[u64; N],
        index: [u16; LANES],
    ) -> [Self::Bytes; 2] {
        let points = index.map(|index| book[usize::from(index) % N].to_le_bytes());
        [0, 4].map(|first| {
            let mut four = [0; 4 * LANES];
            for (four, point) in four.as_chunks_mut::<4>().0.iter_mut().zip(&points) {
                four.copy_from_slice(&point[first..first + 4]);
            }
            self.load_bytes(&four)
        })
    }
    /// Sixteen points of four numbers, a byte each.
    #[inline(always)]
    fn points_of_four<const N: usize>(self, book: &[u32; N], index: [u16; LANES]) -> Self::Bytes {
        let mut points = [0; 4 * LANES];
        for (point, index) in points.as_chunks_mut::<4>().0.iter_mut().zip(index) {
            *point = book[usize::from(index) % N].to_le_bytes();
        }
        self.load_bytes(&points)
    }
    /// `plus` plus each of four magnitudes in a lane, or less it where the lane's byte of `signs` has a bit:
    /// of its lower four, or where `UPPER` of its upper four, the first magnitude's lowest.
    #[inline(always)]
    fn signed<const UPPER: bool>(
        self,
        magnitudes: Self::Bytes,
        signs: [u8; LANES],
        plus: u8,
    ) -> Self::Bytes {
        let mut bytes = self.bytes_to_array(magnitudes);
        for (four, signs) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(signs) {
            let signs = if UPPER { signs >> 4 } else { signs };
            for (i, byte) in four.iter_mut().enumerate() {
                let magnitude = if signs >> i & 1 == 1 { byte.wrapping_neg() } else { *byte };
                *byte = magnitude.wrapping_add(plus);
            }
        }
        self.load_bytes(&bytes)
    }
    /// Seven signs in the lower bits of each byte, and above them one that makes the number of negative ones even.
    #[inline(always)]
    fn signs_of_seven(self, signs: [u8; LANES]) -> [u8; LANES] {
        signs.map(|signs| signs_of_seven(signs & 127))
    }
    /// Each of the four bytes in a lane plus the lane's of `plus`, wrapping around.
    #[inline(always)]
    fn plus_each(self, x: Self::Bytes, plus: [u8; LANES]) -> Self::Bytes {
        let mut bytes = self.bytes_to_array(x);
        for (four, plus) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(plus) {
            *four = four.map(|byte| byte.wrapping_add(plus));
        }
        self.load_bytes(&bytes)
    }
    /// `acc` plus the products of unsigned weights of at most 127 with signed `x`.
    fn dot_small(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints;
    /// `acc` plus the products of unsigned weights, less `WIDE_OFFSET`, with signed `x` from -127.
    fn dot_wide(self, acc: Self::Ints, w: Self::Bytes, x: Self::Bytes) -> Self::Ints;

    /// As [`Products::dot_small`] for each of `N` groups, of which all sums of two products fit
    /// sixteen bits together.
    #[inline(always)]
    fn dot_together<const N: usize>(
        self,
        acc: Self::Ints,
        w: [Self::Bytes; N],
        x: [Self::Bytes; N],
    ) -> Self::Ints {
        let mut sums = acc;
        for (w, x) in w.into_iter().zip(x) {
            sums = self.dot_small(sums, w, x);
        }
        sums
    }
    /// Each byte less `offset`, wrapping around.
    #[inline(always)]
    fn less(self, x: Self::Bytes, offset: u8) -> Self::Bytes {
        self.load_bytes(&self.bytes_to_array(x).map(|x| x.wrapping_sub(offset)))
    }
    /// Integers of at most 24 bits as f32.
    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
    #[expect(clippy::cast_precision_loss, reason = "sums of a block are below 2^24")]
    fn load_ints(self, x: &[i32; LANES]) -> Self::V {
        self.load(&x.map(|x| x as f32))
    }
    fn load_u8(self, x: &[u8; LANES]) -> Self::V {
        self.load(&x.map(f32::from))
    }
    /// Keeps the compiler from moving loads of later steps up, where they would spill a tile.
    #[inline(always)]
    fn barrier(self) {}
}

/// A stored element that widens to f32 exactly.
pub(crate) trait Element: Copy + Default + Send + Sync {
    fn load<L: Lanes>(lanes: L, x: &[Self; LANES]) -> L::V;
    /// Rounds to nearest, ties to even.
    fn narrow<L: Lanes>(lanes: L, v: L::V) -> [Self; LANES];
    /// Writes the first of sixteen numbers to uninitialized memory, rounded, as many as fit.
    #[inline(always)]
    fn write<L: Lanes>(lanes: L, v: L::V, out: &mut [MaybeUninit<Self>]) {
        let each = Self::narrow(lanes, v);
        if let Some(whole) = out.first_chunk_mut::<LANES>() {
            whole.write_copy_of_slice(&each);
        } else {
            out.write_copy_of_slice(&each[..out.len()]);
        }
    }
    /// The elements, where they are bf16.
    #[inline(always)]
    fn as_bf16(_: &[Self]) -> Option<&[bf16]> {
        None
    }
}

impl Element for f32 {
    #[inline(always)]
    fn load<L: Lanes>(lanes: L, x: &[Self; LANES]) -> L::V {
        lanes.load(x)
    }
    #[inline(always)]
    fn narrow<L: Lanes>(lanes: L, v: L::V) -> [Self; LANES] {
        let mut out = [0.0; LANES];
        lanes.store(v, &mut out);
        out
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn load<L: Lanes>(lanes: L, x: &[Self; LANES]) -> L::V {
        lanes.load_bf16(x)
    }
    #[inline(always)]
    fn narrow<L: Lanes>(lanes: L, v: L::V) -> [Self; LANES] {
        lanes.narrow_bf16(v)
    }
    #[inline(always)]
    fn as_bf16(elements: &[Self]) -> Option<&[bf16]> {
        Some(elements)
    }
}

impl Element for f16 {
    #[inline(always)]
    fn load<L: Lanes>(lanes: L, x: &[Self; LANES]) -> L::V {
        lanes.load_f16(x)
    }
    #[inline(always)]
    fn narrow<L: Lanes>(lanes: L, v: L::V) -> [Self; LANES] {
        lanes.narrow_f16(v)
    }
}

/// The first elements of a vector, zeros after them; `x` holds less than sixteen.
#[inline(always)]
pub(crate) fn load_tail<L: Lanes, E: Element>(lanes: L, x: &[E]) -> L::V {
    let mut padded = [E::default(); LANES];
    padded[..x.len()].copy_from_slice(x);
    E::load(lanes, &padded)
}
