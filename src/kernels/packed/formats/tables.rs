//! Kinds whose values are codes of a few bits, by a table of what they stand for: unevenly spaced
//! numbers, 4-bit floats, trits.

use sconce_blocks::codebooks::{HALF_E4M3, HALF_E8M0, IQ4_VALUES, MXFP4_VALUES};
use sconce_blocks::{Coded, Numbers, numbers};

use super::coded::{SUBS, put_rows, put_scale, row, subs};
use super::format::{Format, Four, GROUP, HALF_EACH, PANEL, SUB_BLOCK, Values, halves, vector};
use crate::cpu::Products;

/// Sixteen unevenly spaced numbers, 128 above what they stand for.
pub(crate) struct Uneven;
/// Floats of four bits, 12 above twice what they stand for.
pub(crate) struct Floats;

/// Codes of four bits, by a table of what they stand for.
macro_rules! table {
    ($values:ident, $table:expr, $offset:expr, $wide:expr) => {
        impl $values {
            const TABLE: [u8; 16] = {
                let mut table = [0; 16];
                let mut i = 0;
                while i < 16 {
                    table[i] = $table[i].cast_unsigned().wrapping_add($offset);
                    i += 1;
                }
                table
            };
        }
        impl Values for $values {
            const BYTES: usize = Four::BYTES;
            const WIDE: bool = $wide;
            const TOGETHER: usize = if $wide { 1 } else { 4 };

            #[inline(always)]
            fn load<L: Products>(l: L, values: &[u8], group: usize, v: usize) -> L::Bytes {
                l.lookup(&Self::TABLE, Four::load(l, values, group, v))
            }

            fn put(values: &[u8; SUB_BLOCK], column: usize, to: &mut [u8]) {
                Four::put(values, column, to);
            }
        }
    };
}

table!(Uneven, IQ4_VALUES, 128, true);
table!(Floats, MXFP4_VALUES, 12, false);

/// Codes of 32 numbers in sixteen bytes: the first half of each `2 * half` in the lower four bits.
fn nibbles(codes: &[u8], half: usize) -> [u8; SUB_BLOCK] {
    std::array::from_fn(|i| {
        let byte = codes[i / (2 * half) * half + i % half];
        if i % (2 * half) < half { byte & 15 } else { byte >> 4 }
    })
}

/// IQ4_NL: a scale, and codes of four bits.
pub(crate) struct Iq4Nl;
/// IQ4_XS: eight times codes of four bits and a scale of six bits, less 32.
pub(crate) struct Iq4Xs;
/// NVFP4: two times 4-bit floats, and two scales of them.
pub(crate) struct Nvfp4;
/// MXFP4: two times 4-bit floats, and half of a power of two by its exponent.
pub(crate) struct Mxfp4;

impl Format for Iq4Nl {
    type Values = Uneven;
    const BLOCK: usize = Coded::Iq4Nl.type_size();
    const SUBS: usize = 1;
    const HEAD: usize = 0;
    const SCALES: usize = HALF_EACH;
    const HALVES: usize = 1;
    const OFFSET: i32 = 128;
    const MINS: bool = false;

    #[inline(always)]
    fn scale<L: Products>(l: L, _: &[u8], sub: &[u8], _: usize, v: usize) -> L::V {
        halves(l, sub, v)
    }

    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        put_scale(block, column, cell);
        Uneven::put(&nibbles(&block[2..], 16), column, &mut cell[Self::SCALES..]);
    }
}

impl Format for Iq4Xs {
    type Values = Uneven;
    const BLOCK: usize = Coded::Iq4Xs.type_size();
    const SUBS: usize = SUBS;
    const HEAD: usize = HALF_EACH;
    const SCALES: usize = PANEL;
    const HALVES: usize = 1;
    const OFFSET: i32 = 128;
    const MINS: bool = false;

    #[inline(always)]
    fn scale<L: Products>(l: L, head: &[u8], sub: &[u8], _: usize, v: usize) -> L::V {
        l.mul(halves(l, head, v), l.load_i8(&row(sub, 0, v).map(u8::cast_signed)))
    }

    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        put_scale(block, column, cell);
        let upper = u16::from_le_bytes([block[2], block[3]]);
        for (sub, to) in subs::<Self>(cell) {
            let [two, _] = (upper >> (2 * sub) & 3).to_le_bytes();
            let four = block[4 + sub / 2] >> (4 * (sub % 2)) & 15;
            to[column] = (four | two << 4).wrapping_sub(32);
            Uneven::put(&nibbles(&block[8 + 16 * sub..], 16), column, &mut to[Self::SCALES..]);
        }
    }
}

impl Format for Nvfp4 {
    type Values = Floats;
    const BLOCK: usize = Coded::Nvfp4.type_size();
    const SUBS: usize = 2;
    const HEAD: usize = 0;
    const SCALES: usize = 2 * PANEL;
    const HALVES: usize = 2;
    const OFFSET: i32 = 12;
    const MINS: bool = false;

    #[inline(always)]
    fn scale<L: Products>(l: L, _: &[u8], sub: &[u8], half: usize, v: usize) -> L::V {
        l.load(&row(sub, half, v).map(|code| HALF_E4M3[usize::from(code & 127)]))
    }

    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        for (sub, to) in subs::<Self>(cell) {
            let scales = &block[2 * sub..2 * sub + 2];
            // The sign of a scale is ignored, but then the code of NaN is a number.
            put_rows(scales.iter().copied(), column, to);
            Floats::put(&nibbles(&block[4 + 16 * sub..], 8), column, &mut to[Self::SCALES..]);
        }
    }
}

impl Format for Mxfp4 {
    type Values = Floats;
    const BLOCK: usize = Coded::Mxfp4.type_size();
    const SUBS: usize = 1;
    const HEAD: usize = 0;
    const SCALES: usize = PANEL;
    const HALVES: usize = 1;
    const OFFSET: i32 = 12;
    const MINS: bool = false;

    #[inline(always)]
    fn scale<L: Products>(l: L, _: &[u8], sub: &[u8], _: usize, v: usize) -> L::V {
        l.load(&row(sub, 0, v).map(|exponent| HALF_E8M0[usize::from(exponent)]))
    }

    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        cell[column] = block[0];
        Floats::put(&nibbles(&block[1..], 16), column, &mut cell[Self::SCALES..]);
    }
}

/// Trits, one above what they stand for, times sixteen.
pub(crate) struct Trits;
/// TQ2_0: a scale, and trits of two bits. TQ1_0 is stored so too.
pub(crate) struct Ternary<const PACKED: bool>;

impl Values for Trits {
    const BYTES: usize = 2 * GROUP;
    const WIDE: bool = false;
    const TOGETHER: usize = 2;

    #[inline(always)]
    fn load<L: Products>(l: L, values: &[u8], group: usize, v: usize) -> L::Bytes {
        let four = l.load_bytes(vector(values, 4 * (group / 4) + v));
        match group % 4 {
            0 => l.two_bits::<0>(four),
            1 => l.two_bits::<1>(four),
            2 => l.two_bits::<2>(four),
            _ => l.two_bits::<3>(four),
        }
    }

    fn put(values: &[u8; SUB_BLOCK], column: usize, to: &mut [u8]) {
        for (i, value) in values.iter().enumerate() {
            let group = i / 4;
            to[group / 4 * GROUP + 4 * column + i % 4] |= (value & 3) << (2 * (group % 4));
        }
    }
}

impl<const PACKED: bool> Ternary<PACKED> {
    const KIND: Coded = if PACKED { Coded::Tq1_0 } else { Coded::Tq2_0 };
}

impl<const PACKED: bool> Format for Ternary<PACKED> {
    type Values = Trits;
    const BLOCK: usize = Self::KIND.type_size();
    const SUBS: usize = SUBS;
    const HEAD: usize = HALF_EACH;
    const SCALES: usize = 0;
    const HALVES: usize = 1;
    const OFFSET: i32 = 16;
    const MINS: bool = false;

    #[inline(always)]
    fn scale<L: Products>(l: L, head: &[u8], _: &[u8], _: usize, v: usize) -> L::V {
        l.mul(halves(l, head, v), l.splat(1.0 / 16.0))
    }

    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        cell[2 * column..][..2].copy_from_slice(&block[Self::BLOCK - 2..]);
        for (sub, to) in subs::<Self>(cell) {
            let Numbers { values, .. } = numbers(Self::KIND, block, sub);
            Trits::put(&values.map(|trit| (trit + 1).cast_unsigned()), column, to);
        }
    }
}
