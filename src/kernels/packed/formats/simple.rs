//! Kinds with one block of 32 elements: a scale, perhaps a minimum, and the values.

use super::format::{Eight, Five, Format, Four, HALF_EACH, SUB_BLOCK, Values, halves};
use crate::cpu::Products;

/// Q8_0: `scale * (value - 128)`; the file has signed bytes.
pub(crate) struct Q8_0;
/// Q4_0: `scale * (value - 8)`, four bits.
pub(crate) struct Q4_0;
/// Q4_1: `scale * value + min`, four bits.
pub(crate) struct Q4_1;
/// Q5_0: `scale * (value - 16)`, five bits.
pub(crate) struct Q5_0;
/// Q5_1: `scale * value + min`, five bits.
pub(crate) struct Q5_1;

/// Bytes of an f16.
const HALF: usize = 2;

/// Copies the `count` f16 at the start of a block, each to its own row of columns.
fn put_halves(block: &[u8], count: usize, column: usize, cell: &mut [u8]) {
    for (i, half) in block[..count * HALF].chunks_exact(HALF).enumerate() {
        cell[i * HALF_EACH + HALF * column..][..HALF].copy_from_slice(half);
    }
}

/// Values of four bits: the first sixteen in the low halves of the bytes, the others in the high
/// ones; with a fifth bit from `fifth`.
fn nibbles(bytes: &[u8], fifth: u32) -> [u8; SUB_BLOCK] {
    std::array::from_fn(|i| {
        let byte = bytes[i % 16];
        let four = if i < 16 { byte & 15 } else { byte >> 4 };
        four | (u8::from(fifth >> i & 1 == 1) << 4)
    })
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(*bytes.first_chunk().expect("a block has a word of fifth bits"))
}

macro_rules! simple {
    ($kind:ident, $values:ident, $block:expr, $halves:expr, $offset:expr,
     $block_name:ident => $read:expr) => {
        impl Format for $kind {
            type Values = $values;
            const BLOCK: usize = $block;
            const SUBS: usize = 1;
            const HEAD: usize = 0;
            const SCALES: usize = $halves * HALF_EACH;
            const HALVES: usize = 1;
            const OFFSET: i32 = $offset;
            const MINS: bool = $halves == 2;

            #[inline(always)]
            fn scale<L: Products>(l: L, _: &[u8], scales: &[u8], _: usize, v: usize) -> L::V {
                halves(l, scales, v)
            }
            #[inline(always)]
            fn min<L: Products>(l: L, _: &[u8], scales: &[u8], v: usize) -> L::V {
                if Self::MINS { halves(l, &scales[HALF_EACH..], v) } else { l.splat(0.0) }
            }
            fn put($block_name: &[u8], column: usize, cell: &mut [u8]) {
                put_halves($block_name, $halves, column, cell);
                <$values>::put(&$read, column, &mut cell[Self::SCALES..]);
            }
        }
    };
}

simple!(Q8_0, Eight, 34, 1, 128, block => std::array::from_fn(|i| block[2 + i] ^ 0x80));
simple!(Q4_0, Four, 18, 1, 8, block => nibbles(&block[2..], 0));
simple!(Q4_1, Four, 20, 2, 0, block => nibbles(&block[4..], 0));
simple!(Q5_0, Five, 22, 1, 16, block => nibbles(&block[6..], word(&block[2..])));
simple!(Q5_1, Five, 24, 2, 0, block => nibbles(&block[8..], word(&block[4..])));
