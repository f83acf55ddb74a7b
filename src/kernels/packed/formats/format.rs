//! What the packed kinds have in common: a panel's measures, and values of four to eight bits.

use crate::cpu::{LANES, Products};

/// Columns of a panel.
pub(crate) const PANEL: usize = 64;
/// Elements of K in a sub-block.
pub(crate) const SUB_BLOCK: usize = 32;
/// Bytes of one f16 for each column.
pub(super) const HALF_EACH: usize = 2 * PANEL;
/// Bytes of one group of four values of eight bits for each column.
pub(super) const GROUP: usize = 4 * PANEL;

/// One GGUF kind, packed.
pub(crate) trait Format {
    /// How the 32 values of a sub-block are stored.
    type Values: Values;
    /// Bytes of a block in a GGUF file.
    const BLOCK: usize;
    /// Sub-blocks of a cell.
    const SUBS: usize;
    /// Bytes of a cell before its sub-blocks.
    const HEAD: usize;
    /// Bytes of a sub-block before its values.
    const SCALES: usize;
    /// Scales of a sub-block and column: one, or one for each sixteen elements.
    const HALVES: usize;
    /// What is subtracted from a stored value.
    const OFFSET: i32;
    /// Whether a constant is added to the scaled values of a sub-block.
    const MINS: bool;

    /// Bytes of a sub-block.
    const SUB: usize = Self::SCALES + Self::Values::BYTES;
    /// Bytes of a cell.
    const CELL: usize = Self::HEAD + Self::SUBS * Self::SUB;

    /// Scale of columns `16 v..16 v + 16` in half `half` of the sub-block `sub`.
    fn scale<L: Products>(l: L, head: &[u8], sub: &[u8], half: usize, v: usize) -> L::V;
    /// Constant that is added to each value of columns `16 v..16 v + 16`, where `MINS`.
    fn min<L: Products>(l: L, _head: &[u8], _sub: &[u8], _v: usize) -> L::V {
        l.splat(0.0)
    }
    /// Writes a GGUF block as column `column` of a zeroed cell.
    fn put(block: &[u8], column: usize, cell: &mut [u8]);
}

/// The 32 values of a sub-block for each column.
pub(crate) trait Values: Sized {
    /// Bytes of a sub-block's values, for all columns.
    const BYTES: usize;
    /// Whether values may be above 127.
    const WIDE: bool;
    /// Whether groups `g` and `g + 4` share bytes, and not `2 g` and `2 g + 1`.
    const PAIRED: bool = true;
    /// Groups whose products with bytes from -127 to 127, pairs of them summed, fit sixteen bits
    /// together.
    const TOGETHER: usize = 1;
    /// Group `group` (0 to 7) of columns `16 v..16 v + 16`.
    fn load<L: Products>(l: L, values: &[u8], group: usize, v: usize) -> L::Bytes;
    /// The two groups of pair `pair` (0 to 3), see [`pair_groups`].
    #[inline(always)]
    fn load_pair<L: Products>(l: L, values: &[u8], pair: usize, v: usize) -> [L::Bytes; 2] {
        let [first, second] = pair_groups::<Self>(pair);
        [Self::load(l, values, first, v), Self::load(l, values, second, v)]
    }
    /// Writes the values of one column to zeroed memory.
    fn put(values: &[u8; SUB_BLOCK], column: usize, to: &mut [u8]);
}

/// The groups that are loaded together.
#[inline(always)]
pub(crate) const fn pair_groups<V: Values>(pair: usize) -> [usize; 2] {
    if V::PAIRED { [pair, pair + 4] } else { [2 * pair, 2 * pair + 1] }
}

/// Values of eight bits.
pub(crate) struct Eight;
/// Values of four bits.
pub(crate) struct Four;
/// Values of five bits: four, and one more behind those of all values.
pub(crate) struct Five;
/// Values of six bits: four, and two more behind those of all values.
pub(crate) struct Six;

/// Vector `index` of the sixty-four byte vectors in `bytes`.
#[inline(always)]
pub(super) fn vector(bytes: &[u8], index: usize) -> &[u8; 4 * LANES] {
    let start = index * 4 * LANES;
    bytes[start..start + 4 * LANES].first_chunk().expect("the slice has that length")
}

/// Sixteen f16 scales from `columns`, for columns `16 v..16 v + 16`.
#[inline(always)]
pub(super) fn halves<L: Products>(l: L, columns: &[u8], v: usize) -> L::V {
    let bytes = &columns[2 * LANES * v..2 * LANES * (v + 1)];
    #[expect(clippy::cast_ptr_alignment, reason = "told below")]
    // SAFETY: f16 is a transparent u16 of which every bit pattern is valid; the slice covers
    // sixteen of them, and cells begin at even addresses: every part of one has an even size.
    let halves = unsafe { &*bytes.as_ptr().cast::<[half::f16; LANES]>() };
    l.load_f16(halves)
}

/// Sixteen unsigned bytes from `columns`, for columns `16 v..16 v + 16`.
#[inline(always)]
pub(super) fn bytes<L: Products>(l: L, columns: &[u8], v: usize) -> L::V {
    l.load_u8(columns[LANES * v..LANES * (v + 1)].first_chunk().expect("sixteen bytes"))
}

impl Values for Eight {
    const BYTES: usize = 8 * GROUP;
    const WIDE: bool = true;
    const PAIRED: bool = false;

    #[inline(always)]
    fn load<L: Products>(l: L, values: &[u8], group: usize, v: usize) -> L::Bytes {
        l.load_bytes(vector(values, 4 * group + v))
    }

    fn put(values: &[u8; SUB_BLOCK], column: usize, to: &mut [u8]) {
        for (group, four) in values.as_chunks::<4>().0.iter().enumerate() {
            to[group * GROUP + 4 * column..][..4].copy_from_slice(four);
        }
    }
}

impl Values for Four {
    const BYTES: usize = 4 * GROUP;
    const WIDE: bool = false;
    const TOGETHER: usize = 4;

    #[inline(always)]
    fn load<L: Products>(l: L, values: &[u8], group: usize, v: usize) -> L::Bytes {
        let both = l.load_bytes(vector(values, 4 * (group % 4) + v));
        if group < 4 { l.low_nibbles(both) } else { l.high_nibbles(both) }
    }

    fn put(values: &[u8; SUB_BLOCK], column: usize, to: &mut [u8]) {
        let (low, high) = values.split_at(SUB_BLOCK / 2);
        for (i, (low, high)) in low.iter().zip(high).enumerate() {
            to[i / 4 * GROUP + 4 * column + i % 4] = low & 15 | (high & 15) << 4;
        }
    }
}

impl Values for Five {
    const BYTES: usize = Four::BYTES + 4 * PANEL;
    const WIDE: bool = false;
    const TOGETHER: usize = 4;

    #[inline(always)]
    fn load<L: Products>(l: L, values: &[u8], group: usize, v: usize) -> L::Bytes {
        let bits = &values[Four::BYTES + 8 * (4 * group + v)..][..8];
        let fifth = l.sixteen_where(bits.first_chunk().expect("eight bytes"));
        l.or(Four::load(l, values, group, v), fifth)
    }

    fn put(values: &[u8; SUB_BLOCK], column: usize, to: &mut [u8]) {
        Four::put(values, column, to);
        let (v, lane) = (column / LANES, column % LANES);
        for (i, value) in values.iter().enumerate() {
            let bit = 4 * lane + i % 4;
            to[Four::BYTES + 8 * (4 * (i / 4) + v) + bit / 8] |= (value >> 4 & 1) << (bit % 8);
        }
    }
}

impl Values for Six {
    const BYTES: usize = Four::BYTES + 2 * GROUP;
    const WIDE: bool = false;
    const TOGETHER: usize = 2;

    #[inline(always)]
    fn load<L: Products>(l: L, values: &[u8], group: usize, v: usize) -> L::Bytes {
        let upper = l.load_bytes(vector(&values[Four::BYTES..], 4 * (group / 4) + v));
        let upper = match group % 4 {
            0 => l.two_bits::<0>(upper),
            1 => l.two_bits::<1>(upper),
            2 => l.two_bits::<2>(upper),
            _ => l.two_bits::<3>(upper),
        };
        l.or(Four::load(l, values, group, v), upper)
    }

    fn put(values: &[u8; SUB_BLOCK], column: usize, to: &mut [u8]) {
        Four::put(values, column, to);
        for (i, value) in values.iter().enumerate() {
            let group = i / 4;
            let at = Four::BYTES + group / 4 * GROUP + 4 * column + i % 4;
            to[at] |= (value >> 4 & 3) << (2 * (group % 4));
        }
    }
}
