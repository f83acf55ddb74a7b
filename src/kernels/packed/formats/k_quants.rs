//! Kinds with blocks of 256 elements and scales of scales ("k-quants" of llama.cpp).

use super::format::{Five, Format, Four, HALF_EACH, PANEL, SUB_BLOCK, Six, Values, bytes, halves};
use crate::cpu::{LANES, Products};

/// Q4_K: `scale * sub_scale * value - min * sub_min`, four bits.
pub(crate) struct Q4K;
/// Q5_K: `scale * sub_scale * value - min * sub_min`, five bits.
pub(crate) struct Q5K;
/// Q6_K: `scale * sub_scale * (value - 32)`, six bits, a signed sub-scale for each sixteen elements.
pub(crate) struct Q6K;

/// Sub-blocks of a block.
const SUBS: usize = 8;

/// Sub-scale and sub-minimum of sub-block `sub`: six bits each, from the twelve bytes of a block.
fn sub_scale_and_min(packed: &[u8], sub: usize) -> (u8, u8) {
    if sub < 4 {
        return (packed[sub] & 63, packed[sub + 4] & 63);
    }
    let low = packed[sub + 4];
    (low & 15 | packed[sub - 4] >> 6 << 4, low >> 4 | packed[sub] >> 6 << 4)
}

/// Four bits of element `i` of sub-block `sub`: sub-blocks come in pairs, low halves first.
fn nibble(values: &[u8], sub: usize, i: usize) -> u8 {
    let byte = values[sub / 2 * SUB_BLOCK + i];
    if sub.is_multiple_of(2) { byte & 15 } else { byte >> 4 }
}

/// Two f16 and twelve bytes of scales and minima, then `fifths` bytes of fifth bits, then nibbles.
fn put_with_mins<F: Format>(block: &[u8], fifths: usize, column: usize, cell: &mut [u8]) {
    cell[2 * column..][..2].copy_from_slice(&block[..2]);
    cell[HALF_EACH + 2 * column..][..2].copy_from_slice(&block[2..4]);
    let (scales, rest) = block[4..].split_at(12);
    let (fifth, values) = rest.split_at(fifths);
    for (sub, to) in cell[F::HEAD..].chunks_exact_mut(F::SUB).enumerate() {
        (to[column], to[PANEL + column]) = sub_scale_and_min(scales, sub);
        let values = std::array::from_fn(|i| {
            let bit = fifth.get(i).map_or(0, |bits| bits >> sub & 1);
            nibble(values, sub, i) | bit << 4
        });
        F::Values::put(&values, column, &mut to[F::SCALES..]);
    }
}

macro_rules! with_mins {
    ($kind:ident, $values:ident, $block:expr, $fifths:expr) => {
        impl Format for $kind {
            type Values = $values;
            const BLOCK: usize = $block;
            const SUBS: usize = SUBS;
            const HEAD: usize = 2 * HALF_EACH;
            const SCALES: usize = 2 * PANEL;
            const HALVES: usize = 1;
            const OFFSET: i32 = 0;
            const MINS: bool = true;

            #[inline(always)]
            fn scale<L: Products>(l: L, head: &[u8], scales: &[u8], _: usize, v: usize) -> L::V {
                l.mul(halves(l, head, v), bytes(l, scales, v))
            }
            #[inline(always)]
            fn min<L: Products>(l: L, head: &[u8], scales: &[u8], v: usize) -> L::V {
                let min = l.mul(halves(l, &head[HALF_EACH..], v), bytes(l, &scales[PANEL..], v));
                l.sub(l.splat(0.0), min)
            }
            fn put(block: &[u8], column: usize, cell: &mut [u8]) {
                put_with_mins::<Self>(block, $fifths, column, cell);
            }
        }
    };
}

with_mins!(Q4K, Four, 144, 0);
with_mins!(Q5K, Five, 176, 32);

impl Format for Q6K {
    type Values = Six;
    const BLOCK: usize = 210;
    const SUBS: usize = SUBS;
    const HEAD: usize = HALF_EACH;
    const SCALES: usize = 2 * PANEL;
    const HALVES: usize = 2;
    const OFFSET: i32 = 32;
    const MINS: bool = false;

    #[inline(always)]
    fn scale<L: Products>(l: L, head: &[u8], scales: &[u8], half: usize, v: usize) -> L::V {
        let signed = &scales[PANEL * half + LANES * v..][..LANES];
        let signed: &[u8; LANES] = signed.first_chunk().expect("sixteen bytes");
        l.mul(halves(l, head, v), l.load_i8(&signed.map(u8::cast_signed)))
    }

    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        let (low, rest) = block.split_at(128);
        let (high, rest) = rest.split_at(64);
        let (scales, scale) = rest.split_at(16);
        cell[2 * column..][..2].copy_from_slice(scale);
        for (sub, to) in cell[Self::HEAD..].chunks_exact_mut(Self::SUB).enumerate() {
            to[column] = scales[2 * sub];
            to[PANEL + column] = scales[2 * sub + 1];
            // Four sub-blocks share 64 bytes of low bits and 32 bytes of high bits.
            let (half, quarter) = (sub / 4, sub % 4);
            let values = std::array::from_fn(|i| {
                let byte = low[64 * half + 32 * (quarter % 2) + i];
                let four = if quarter < 2 { byte & 15 } else { byte >> 4 };
                four | (high[32 * half + i] >> (2 * quarter) & 3) << 4
            });
            Six::put(&values, column, &mut to[Self::SCALES..]);
        }
    }
}
