//! Kinds whose values are points of codebooks: an index stands for four or eight numbers at a time, which is what one
//! column has in one group or in two neighbouring ones.

use sconce_blocks::Coded;
use sconce_blocks::codebooks::{
    IQ1_POINTS, IQ2_S_POINTS, IQ2_XS_POINTS, IQ2_XXS_POINTS, IQ3_S_POINTS, IQ3_XXS_POINTS,
};

use super::coded::{SUBS, put_rows, put_scale, row, scales_of, subs};
use super::format::{Format, HALF_EACH, PANEL, SUB_BLOCK, Values};
use crate::cpu::{LANES, Products};

/// Sixteen indices of eight bits.
#[inline(always)]
fn bytes_as_indices(bytes: &[u8; LANES]) -> [u16; LANES] {
    bytes.map(u16::from)
}

/// Sixteen indices, whose bits from the eighth on are `upper`.
#[inline(always)]
fn indices(low: &[u8; LANES], upper: [u8; LANES]) -> [u16; LANES] {
    std::array::from_fn(|i| u16::from(low[i]) | u16::from(upper[i]) << 8)
}

/// Sixteen points of eight numbers with their signs, plus 64.
#[inline(always)]
fn signed_eight<L: Products, const N: usize>(
    l: L,
    book: &[u64; N],
    index: [u16; LANES],
    signs: [u8; LANES],
) -> [L::Bytes; 2] {
    let [first, second] = l.points_of_eight(book, index);
    [l.signed::<false>(first, signs, 64), l.signed::<true>(second, signs, 64)]
}

/// Two times sixteen points of four numbers with their signs, plus `plus`.
#[inline(always)]
fn signed_fours<L: Products, const N: usize>(
    l: L,
    book: &[u32; N],
    first: [u16; LANES],
    second: [u16; LANES],
    signs: [u8; LANES],
    plus: u8,
) -> [L::Bytes; 2] {
    [
        l.signed::<false>(l.points_of_four(book, first), signs, plus),
        l.signed::<true>(l.points_of_four(book, second), signs, plus),
    ]
}

/// Points of codebooks, two groups at a time.
macro_rules! points {
    ($kind:ident, $rows:expr, $together:expr,
     |$l:ident, $values:ident, $pair:ident, $v:ident| $both:expr) => {
        impl Values for $kind {
            const BYTES: usize = $rows * PANEL;
            const WIDE: bool = false;
            const PAIRED: bool = false;
            const TOGETHER: usize = $together;

            #[inline(always)]
            fn load<L: Products>(l: L, values: &[u8], group: usize, v: usize) -> L::Bytes {
                Self::load_pair(l, values, group / 2, v)[group % 2]
            }

            #[inline(always)]
            fn load_pair<L: Products>(
                $l: L,
                $values: &[u8],
                $pair: usize,
                $v: usize,
            ) -> [L::Bytes; 2] {
                $both
            }

            fn put(_: &[u8; SUB_BLOCK], _: usize, _: &mut [u8]) {
                unreachable!("points are written by their formats");
            }
        }
    };
}

/// What the formats with signed points have in common: blocks have 256 numbers.
macro_rules! of_points {
    ($kind:ident, $scales:expr, $halves:expr, $offset:expr, $scale:item, $put:item) => {
        impl Format for $kind {
            type Values = Self;
            const BLOCK: usize = Coded::$kind.type_size();
            const SUBS: usize = SUBS;
            const HEAD: usize = HALF_EACH;
            const SCALES: usize = $scales;
            const HALVES: usize = $halves;
            const OFFSET: i32 = $offset;
            const MINS: bool = false;

            #[inline(always)]
            $scale
            $put
        }
    };
}

/// IQ2_XXS: points of eight numbers, of a book of 256; 28 bits of signs and four of a scale.
pub(crate) struct Iq2Xxs;
/// IQ2_XS: points of eight numbers, of a book of 512, with seven bits of signs; two scales.
pub(crate) struct Iq2Xs;
/// IQ2_S: points of eight numbers, of a book of 1024, and signs; two scales.
pub(crate) struct Iq2S;
/// IQ3_XXS: points of four numbers, of a book of 256; 28 bits of signs and four of a scale.
pub(crate) struct Iq3Xxs;
/// IQ3_S: points of four numbers, of a book of 512, and signs; a scale of four bits.
pub(crate) struct Iq3S;

/// Four bytes of seven signs each, whose last bits are the bits of a scale.
fn signs_and_scale(word: u32) -> [u8; 4] {
    std::array::from_fn(|i| {
        let [signs, ..] = (word >> (7 * i) & 127).to_le_bytes();
        let [scale, ..] = (word >> (28 + i) & 1).to_le_bytes();
        signs | scale << 7
    })
}

/// The scales in the last bits of four rows of signs.
#[inline(always)]
fn scattered(rows: &[u8], first: usize, v: usize) -> [u8; LANES] {
    let rows: [_; 4] = std::array::from_fn(|i| row(rows, first + i, v));
    std::array::from_fn(|lane| (0..4).fold(0, |scale, i| scale | (rows[i][lane] >> 7) << i))
}

/// A word of four bytes.
fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*block[at..].first_chunk().expect("a block has whole words"))
}

points!(Iq2Xxs, 8, 1, |l, values, pair, v| {
    let signs = l.signs_of_seven(*row(values, 4 + pair, v));
    signed_eight(l, &IQ2_XXS_POINTS, bytes_as_indices(row(values, pair, v)), signs)
});
of_points!(
    Iq2Xxs,
    0,
    1,
    64,
    fn scale<L: Products>(l: L, head: &[u8], sub: &[u8], _: usize, v: usize) -> L::V {
        l.mul(scales_of(l, head, scattered(sub, 4, v), v, 0.5), l.splat(0.25))
    },
    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        put_scale(block, column, cell);
        for (sub, to) in subs::<Self>(cell) {
            let at = 2 + 8 * sub;
            let signs = signs_and_scale(word(block, at + 4));
            put_rows(block[at..at + 4].iter().copied().chain(signs), column, to);
        }
    }
);

points!(Iq2Xs, 8, 1, |l, values, pair, v| {
    let upper = row(values, 4 + pair, v);
    let index = indices(row(values, pair, v), upper.map(|upper| upper & 1));
    signed_eight(l, &IQ2_XS_POINTS, index, l.signs_of_seven(upper.map(|upper| upper >> 1)))
});
of_points!(
    Iq2Xs,
    PANEL,
    2,
    64,
    fn scale<L: Products>(l: L, head: &[u8], sub: &[u8], half: usize, v: usize) -> L::V {
        two_scales(l, head, sub, half, v)
    },
    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        put_scale(block, column, cell);
        for (sub, to) in subs::<Self>(cell) {
            let codes = &block[2 + 8 * sub..2 + 8 * (sub + 1)];
            let low = codes.iter().step_by(2);
            let high = codes.iter().skip(1).step_by(2);
            let rows = [block[66 + sub]].into_iter().chain(low.chain(high).copied());
            put_rows(rows, column, to);
        }
    }
);

/// The scale of half `half`, of two in the four bits of a byte.
#[inline(always)]
fn two_scales<L: Products>(l: L, head: &[u8], sub: &[u8], half: usize, v: usize) -> L::V {
    let four = row(sub, 0, v).map(|both| both >> (4 * half) & 15);
    l.mul(scales_of(l, head, four, v, 0.5), l.splat(0.25))
}

points!(Iq2S, 9, 1, |l, values, pair, v| {
    let upper = row(values, 4, v).map(|upper| upper >> (2 * pair) & 3);
    signed_eight(l, &IQ2_S_POINTS, indices(row(values, pair, v), upper), *row(values, 5 + pair, v))
});
of_points!(
    Iq2S,
    PANEL,
    2,
    64,
    fn scale<L: Products>(l: L, head: &[u8], sub: &[u8], half: usize, v: usize) -> L::V {
        two_scales(l, head, sub, half, v)
    },
    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        put_scale(block, column, cell);
        for (sub, to) in subs::<Self>(cell) {
            let four = |start: usize| block[start + 4 * sub..start + 4 * (sub + 1)].iter();
            let codes = four(2).chain([&block[66 + sub]]).chain(four(34));
            put_rows([&block[74 + sub]].into_iter().chain(codes).copied(), column, to);
        }
    }
);

points!(Iq3Xxs, 12, 1, |l, values, pair, v| {
    let first = bytes_as_indices(row(values, 2 * pair, v));
    let second = bytes_as_indices(row(values, 2 * pair + 1, v));
    let signs = l.signs_of_seven(*row(values, 8 + pair, v));
    signed_fours(l, &IQ3_XXS_POINTS, first, second, signs, 64)
});
of_points!(
    Iq3Xxs,
    0,
    1,
    64,
    fn scale<L: Products>(l: L, head: &[u8], sub: &[u8], _: usize, v: usize) -> L::V {
        l.mul(scales_of(l, head, scattered(sub, 8, v), v, 0.5), l.splat(0.5))
    },
    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        put_scale(block, column, cell);
        for (sub, to) in subs::<Self>(cell) {
            let signs = signs_and_scale(word(block, 66 + 4 * sub));
            let points = &block[2 + 8 * sub..2 + 8 * (sub + 1)];
            put_rows(points.iter().copied().chain(signs), column, to);
        }
    }
);

points!(Iq3S, 13, 4, |l, values, pair, v| {
    let upper = row(values, 8, v);
    let first = indices(row(values, 2 * pair, v), upper.map(|upper| upper >> (2 * pair) & 1));
    let second =
        indices(row(values, 2 * pair + 1, v), upper.map(|upper| upper >> (2 * pair + 1) & 1));
    signed_fours(l, &IQ3_S_POINTS, first, second, *row(values, 9 + pair, v), 16)
});
of_points!(
    Iq3S,
    PANEL / 2,
    1,
    16,
    fn scale<L: Products>(l: L, head: &[u8], sub: &[u8], _: usize, v: usize) -> L::V {
        // Columns `c` and `c + 32` share a byte.
        let four = row(sub, 0, v % 2).map(|both| if v < 2 { both & 15 } else { both >> 4 });
        scales_of(l, head, four.map(|four| 2 * four), v, 1.0)
    },
    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        put_scale(block, column, cell);
        for (sub, to) in subs::<Self>(cell) {
            let scale = block[106 + sub / 2] >> (4 * (sub % 2)) & 15;
            to[column % 32] |= scale << (4 * (column / 32));
            let points = block[2 + 8 * sub..2 + 8 * (sub + 1)].iter();
            let signs = block[74 + 4 * sub..74 + 4 * (sub + 1)].iter();
            let codes = points.chain([&block[66 + sub]]).chain(signs).copied();
            put_rows(codes, column, &mut to[Self::SCALES..]);
        }
    }
);

/// IQ1_S: points of eight trits, of a book of 2048, all of them shifted by an eighth; a scale.
pub(crate) struct Iq1S;
/// IQ1_M: points of eight trits, of a book of 2048, each shifted by an eighth; two scales.
pub(crate) struct Iq1M;

/// Sixteen points of eight trits, times eight, plus 16, and one more or less.
#[inline(always)]
fn shifted<L: Products>(l: L, index: [u16; LANES], down: [u8; LANES]) -> [L::Bytes; 2] {
    let plus = down.map(|down| 1_u8.wrapping_sub(2 * down));
    let [first, second] = l.points_of_eight(&IQ1_POINTS, index);
    [l.plus_each(first, plus), l.plus_each(second, plus)]
}

points!(Iq1S, 6, 4, |l, values, pair, v| {
    let [low, high] = [row(values, 4, v), row(values, 5, v)];
    let upper = std::array::from_fn(|i| {
        let all = u16::from_le_bytes([low[i], high[i]]);
        let [three, _] = (all >> (3 * pair) & 7).to_le_bytes();
        three
    });
    shifted(l, indices(row(values, pair, v), upper), high.map(|high| high >> 7))
});

impl Format for Iq1S {
    type Values = Self;
    const BLOCK: usize = Coded::Iq1S.type_size();
    const SUBS: usize = SUBS;
    const HEAD: usize = HALF_EACH;
    const SCALES: usize = 0;
    const HALVES: usize = 1;
    const OFFSET: i32 = 16;
    const MINS: bool = false;

    #[inline(always)]
    fn scale<L: Products>(l: L, head: &[u8], sub: &[u8], _: usize, v: usize) -> L::V {
        let odd = row(sub, 5, v).map(|upper| 2 * (upper >> 4 & 7));
        l.mul(scales_of(l, head, odd, v, 1.0), l.splat(0.125))
    }

    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        put_scale(block, column, cell);
        for (sub, to) in subs::<Self>(cell) {
            let points = block[2 + 4 * sub..2 + 4 * (sub + 1)].iter();
            let upper = block[34 + 2 * sub..34 + 2 * (sub + 1)].iter();
            put_rows(points.chain(upper).copied(), column, to);
        }
    }
}

points!(Iq1M, 6, 4, |l, values, pair, v| {
    let four = row(values, 4 + pair / 2, v).map(|both| both >> (4 * (pair % 2)));
    let index = indices(row(values, pair, v), four.map(|four| four & 7));
    shifted(l, index, four.map(|four| four >> 3 & 1))
});

impl Format for Iq1M {
    type Values = Self;
    const BLOCK: usize = Coded::Iq1M.type_size();
    const SUBS: usize = SUBS;
    const HEAD: usize = HALF_EACH;
    const SCALES: usize = PANEL;
    const HALVES: usize = 2;
    const OFFSET: i32 = 16;
    const MINS: bool = false;

    #[inline(always)]
    fn scale<L: Products>(l: L, head: &[u8], sub: &[u8], half: usize, v: usize) -> L::V {
        let odd = row(sub, 0, v).map(|both| 2 * (both >> (3 * half) & 7));
        l.mul(scales_of(l, head, odd, v, 1.0), l.splat(0.125))
    }

    fn put(block: &[u8], column: usize, cell: &mut [u8]) {
        // The scale of all is in the upper four bits of four words, the others in the lower ones.
        let words: [u16; 4] =
            std::array::from_fn(|i| u16::from_le_bytes([block[48 + 2 * i], block[49 + 2 * i]]));
        let scale = words.iter().rev().fold(0, |bits, word| bits << 4 | word >> 12);
        cell[2 * column..][..2].copy_from_slice(&u16::to_le_bytes(scale));
        for (sub, to) in subs::<Self>(cell) {
            let [both, _] = (words[sub / 2] >> (6 * (sub % 2)) & 63).to_le_bytes();
            let points = block[4 * sub..4 * (sub + 1)].iter();
            let upper = block[32 + 2 * sub..32 + 2 * (sub + 1)].iter();
            put_rows([&both].into_iter().chain(points).chain(upper).copied(), column, to);
        }
    }
}
