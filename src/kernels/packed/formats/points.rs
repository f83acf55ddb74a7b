//! Kinds whose values are points of codebooks: an index stands for four or eight numbers at a time.
//!
//! The points are four numbers of a word, which is what one column has in a group.

use sconce_blocks::Coded;
use sconce_blocks::codebooks::{
    IQ1_POINTS, IQ2_S_POINTS, IQ2_XS_POINTS, IQ2_XXS_POINTS, IQ3_S_POINTS, IQ3_XXS_POINTS,
    signs_of_seven,
};

use super::coded::{SUBS, put_rows, put_scale, row, scales_of, subs};
use super::format::{Format, HALF_EACH, PANEL, SUB_BLOCK, Values};
use crate::cpu::{LANES, Products};

/// A bit of each of four numbers in a word.
const ONES: u32 = 0x0101_0101;
/// The seven bits of those of four numbers that are negative, by a bit for each.
static NEGATIVE: [u32; 16] = negative();

const fn negative() -> [u32; 16] {
    let mut masks = [0; 16];
    let mut signs = 0;
    while signs < 16 {
        let mut i = 0;
        while i < 4 {
            if signs >> i & 1 == 1 {
                masks[signs] |= 0x7f << (8 * i);
            }
            i += 1;
        }
        signs += 1;
    }
    masks
}

/// 64 plus or minus each of the four magnitudes of `word`, all below 64; minus where `signs` have a
/// bit. No byte carries into the next.
#[inline(always)]
fn signed(word: u32, signs: u8) -> u32 {
    let mask = NEGATIVE[usize::from(signs & 15)];
    (word ^ mask) + 64 * ONES - mask
}

/// A word of each of sixteen columns.
#[inline(always)]
fn words<L: Products>(l: L, word: impl Fn(usize) -> u32) -> L::Bytes {
    let mut bytes = [0; 4 * LANES];
    for (lane, four) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *four = word(lane).to_le_bytes();
    }
    l.load_bytes(&bytes)
}

/// Points of codebooks: 64 plus signed numbers.
macro_rules! points {
    ($kind:ident, $rows:expr, |$values:ident, $group:ident, $v:ident, $lane:ident| $word:expr) => {
        impl Values for $kind {
            const BYTES: usize = $rows * PANEL;
            const WIDE: bool = false;

            #[inline(always)]
            fn load<L: Products>(l: L, $values: &[u8], $group: usize, $v: usize) -> L::Bytes {
                words(l, |$lane| $word)
            }

            fn put(_: &[u8; SUB_BLOCK], _: usize, _: &mut [u8]) {
                unreachable!("points are written by their formats");
            }
        }
    };
}

/// What the formats with points have in common: 64 is subtracted, blocks have 256 numbers.
macro_rules! of_points {
    ($kind:ident, $scales:expr, $halves:expr, $scale:item, $put:item) => {
        impl Format for $kind {
            type Values = Self;
            const BLOCK: usize = Coded::$kind.type_size();
            const SUBS: usize = SUBS;
            const HEAD: usize = HALF_EACH;
            const SCALES: usize = $scales;
            const HALVES: usize = $halves;
            const OFFSET: i32 = 64;
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

/// Four signs of seven and an implied one: the first or the second half of them.
#[inline(always)]
fn half_of_seven(signs: u8, group: usize) -> u8 {
    signs_of_seven(signs & 127) >> (4 * (group % 2))
}

/// A word of four bytes.
fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*block[at..].first_chunk().expect("a block has whole words"))
}

points!(Iq2Xxs, 8, |values, group, v, lane| {
    let index = usize::from(row(values, group / 2, v)[lane]);
    let signs = row(values, 4 + group / 2, v)[lane];
    signed(IQ2_XXS_POINTS[2 * index + group % 2], half_of_seven(signs, group))
});
of_points!(
    Iq2Xxs,
    0,
    1,
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

points!(Iq2Xs, 8, |values, group, v, lane| {
    let eight = group / 2;
    let [low, high] = [row(values, eight, v)[lane], row(values, 4 + eight, v)[lane]];
    let index = usize::from(low) | usize::from(high & 1) << 8;
    signed(IQ2_XS_POINTS[2 * index + group % 2], half_of_seven(high >> 1, group))
});
of_points!(
    Iq2Xs,
    PANEL,
    2,
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

points!(Iq2S, 9, |values, group, v, lane| {
    let eight = group / 2;
    let upper = usize::from(row(values, 4, v)[lane]) >> (2 * eight) & 3;
    let index = usize::from(row(values, eight, v)[lane]) | upper << 8;
    let signs = row(values, 5 + eight, v)[lane] >> (4 * (group % 2));
    signed(IQ2_S_POINTS[2 * index + group % 2], signs)
});
of_points!(
    Iq2S,
    PANEL,
    2,
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

points!(Iq3Xxs, 12, |values, group, v, lane| {
    let index = usize::from(row(values, group, v)[lane]);
    let signs = row(values, 8 + group / 2, v)[lane];
    signed(IQ3_XXS_POINTS[index], half_of_seven(signs, group))
});
of_points!(
    Iq3Xxs,
    0,
    1,
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

points!(Iq3S, 13, |values, group, v, lane| {
    let upper = usize::from(row(values, 8, v)[lane]) >> group & 1;
    let index = usize::from(row(values, group, v)[lane]) | upper << 8;
    let signs = row(values, 9 + group / 2, v)[lane] >> (4 * (group % 2));
    signed(IQ3_S_POINTS[index], signs)
});
of_points!(
    Iq3S,
    PANEL / 2,
    1,
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

/// Four trits of a point, shifted up or down, times eight, plus 16.
#[inline(always)]
fn shifted(index: usize, group: usize, down: bool) -> u32 {
    let trits = IQ1_POINTS[2 * index + group % 2];
    if down { trits - ONES } else { trits + ONES }
}

impl Values for Iq1S {
    const BYTES: usize = 6 * PANEL;
    const WIDE: bool = false;
    const TOGETHER: usize = 4;

    #[inline(always)]
    fn load<L: Products>(l: L, values: &[u8], group: usize, v: usize) -> L::Bytes {
        let eight = group / 2;
        words(l, |lane| {
            let upper = u16::from_le_bytes([row(values, 4, v)[lane], row(values, 5, v)[lane]]);
            let index = usize::from(row(values, eight, v)[lane])
                | usize::from(upper >> (3 * eight) & 7) << 8;
            shifted(index, group, upper & 0x8000 != 0)
        })
    }

    fn put(_: &[u8; SUB_BLOCK], _: usize, _: &mut [u8]) {
        unreachable!("points are written by their formats");
    }
}

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

impl Values for Iq1M {
    const BYTES: usize = 6 * PANEL;
    const WIDE: bool = false;
    const TOGETHER: usize = 4;

    #[inline(always)]
    fn load<L: Products>(l: L, values: &[u8], group: usize, v: usize) -> L::Bytes {
        let eight = group / 2;
        words(l, |lane| {
            let upper = row(values, 4 + eight / 2, v)[lane] >> (4 * (eight % 2));
            let index = usize::from(row(values, eight, v)[lane]) | usize::from(upper & 7) << 8;
            shifted(index, group, upper & 8 != 0)
        })
    }

    fn put(_: &[u8; SUB_BLOCK], _: usize, _: &mut [u8]) {
        unreachable!("points are written by their formats");
    }
}

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
