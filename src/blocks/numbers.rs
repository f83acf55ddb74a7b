//! What a block of a coded kind stands for: integers and their scales.
//!
//! Each layout is that of a struct in llama.cpp's `ggml-common.h`; the numbers are those of gguf-py's
//! `dequantize`, to the bit.

use half::f16;

use super::codebooks::{
    HALF_E4M3, HALF_E8M0, IQ1_POINTS, IQ2_S_POINTS, IQ2_XS_POINTS, IQ2_XXS_POINTS, IQ3_S_POINTS,
    IQ3_XXS_POINTS, IQ4_VALUES, MXFP4_VALUES, signs_of_seven,
};
use super::kind::Coded;

/// Numbers that [`numbers`] gives at a time; it divides the blocks of all coded kinds.
pub const SUB_BLOCK: usize = 32;

/// A part of a block: integers, times a scale for each half of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Numbers {
    /// The scale of the first sixteen, and of the others.
    pub scales: [f32; 2],
    /// The integers, all from -127 to 127.
    pub values: [i8; SUB_BLOCK],
}

/// Writes the numbers of whole blocks of `kind`. `out` has an element for each of theirs.
pub fn dequantize(kind: Coded, blocks: &[u8], out: &mut [f32]) {
    let parts = out.chunks_exact_mut(kind.block_size());
    for (block, out) in blocks.chunks_exact(kind.type_size()).zip(parts) {
        for (sub, out) in out.chunks_exact_mut(SUB_BLOCK).enumerate() {
            let Numbers { scales, values } = numbers(kind, block, sub);
            let halves =
                out.chunks_exact_mut(SUB_BLOCK / 2).zip(values.chunks_exact(SUB_BLOCK / 2));
            for ((out, values), scale) in halves.zip(scales) {
                for (out, value) in out.iter_mut().zip(values) {
                    *out = scale * f32::from(*value);
                }
            }
        }
    }
}

/// The numbers `32 * sub..32 * (sub + 1)` of a block, which has the kind's length.
pub fn numbers(kind: Coded, block: &[u8], sub: usize) -> Numbers {
    match kind {
        Coded::Iq2Xxs => iq2_xxs(block, sub),
        Coded::Iq2Xs => iq2_xs(block, sub),
        Coded::Iq2S => iq2_s(block, sub),
        Coded::Iq3Xxs => iq3_xxs(block, sub),
        Coded::Iq3S => iq3_s(block, sub),
        Coded::Iq1S => iq1_s(block, sub),
        Coded::Iq1M => iq1_m(block, sub),
        Coded::Iq4Nl => {
            let scale = half(block, 0);
            Numbers { scales: [scale; 2], values: from_table(&block[2..], &IQ4_VALUES) }
        }
        Coded::Iq4Xs => iq4_xs(block, sub),
        Coded::Tq1_0 => tq1_0(block, sub),
        Coded::Tq2_0 => {
            let (bytes, shift) = (&block[SUB_BLOCK * (sub / 4)..], 2 * (sub % 4));
            let values = std::array::from_fn(|i| small(bytes[i] >> shift & 3) - 1);
            Numbers { scales: [half(block, 64); 2], values }
        }
        Coded::Nvfp4 => nvfp4(block, sub),
        Coded::Mxfp4 => Numbers {
            scales: [HALF_E8M0[usize::from(block[0])]; 2],
            values: from_table(&block[1..], &MXFP4_VALUES),
        },
    }
}

fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn short(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// A number below 128.
fn small(value: u8) -> i8 {
    value.cast_signed()
}

/// Four bits as a float.
fn nibble(byte: u8, upper: bool) -> f32 {
    f32::from(if upper { byte >> 4 } else { byte & 15 })
}

/// Integers of sixteen bytes of codes: the first half in the lower four bits.
fn from_table(codes: &[u8], table: &[i8; 16]) -> [i8; SUB_BLOCK] {
    std::array::from_fn(|i| {
        let byte = codes[i % 16];
        table[usize::from(if i < 16 { byte & 15 } else { byte >> 4 })]
    })
}

/// Magnitudes of `each` group of four numbers, negative where `signs` of each eight have a bit.
fn signed(each: impl Fn(usize) -> u32, signs: impl Fn(usize) -> u8) -> [i8; SUB_BLOCK] {
    std::array::from_fn(|i| {
        let magnitude = small(each(i / 4).to_le_bytes()[i % 4]);
        if signs(i / 8) >> (i % 8) & 1 == 0 { magnitude } else { -magnitude }
    })
}

/// The signs of each eight numbers in seven bits each of `word`, whose upper four are a scale.
fn packed_signs(word: u32) -> impl Fn(usize) -> u8 {
    move |eight| {
        let seven = (word >> (7 * eight) & 127) as u8;
        signs_of_seven(seven)
    }
}

#[expect(clippy::cast_precision_loss, reason = "four bits")]
fn upper_four(word: u32) -> f32 {
    (word >> 28) as f32
}

/// The first four numbers of a point of eight, of even groups, or the others.
#[expect(clippy::cast_possible_truncation, reason = "the other four are left out")]
fn four_of(point: u64, group: usize) -> u32 {
    (point >> (32 * (group % 2))) as u32
}

fn iq2_xxs(block: &[u8], sub: usize) -> Numbers {
    let at = 2 + 8 * sub;
    let packed = word(block, at + 4);
    let point = |group: usize| four_of(IQ2_XXS_POINTS[usize::from(block[at + group / 2])], group);
    let scale = half(block, 0) * (0.5 + upper_four(packed)) * 0.25;
    Numbers { scales: [scale; 2], values: signed(point, packed_signs(packed)) }
}

fn iq2_xs(block: &[u8], sub: usize) -> Numbers {
    let code = |eight: usize| short(block, 2 + 8 * sub + 2 * eight);
    let point = |group: usize| four_of(IQ2_XS_POINTS[usize::from(code(group / 2) & 511)], group);
    let signs = |eight: usize| signs_of_seven((code(eight) >> 9) as u8);
    Numbers { scales: two_scales(block, block[66 + sub]), values: signed(point, signs) }
}

fn two_scales(block: &[u8], both: u8) -> [f32; 2] {
    [false, true].map(|upper| half(block, 0) * (0.5 + nibble(both, upper)) * 0.25)
}

fn iq2_s(block: &[u8], sub: usize) -> Numbers {
    let upper = usize::from(block[66 + sub]);
    let point = |group: usize| {
        let eight = group / 2;
        let index = usize::from(block[2 + 4 * sub + eight]) | (upper >> (2 * eight) & 3) << 8;
        four_of(IQ2_S_POINTS[index], group)
    };
    let signs = |eight: usize| block[34 + 4 * sub + eight];
    Numbers { scales: two_scales(block, block[74 + sub]), values: signed(point, signs) }
}

fn iq3_xxs(block: &[u8], sub: usize) -> Numbers {
    let packed = word(block, 66 + 4 * sub);
    let point = |group: usize| IQ3_XXS_POINTS[usize::from(block[2 + 8 * sub + group])];
    let scale = half(block, 0) * (0.5 + upper_four(packed)) * 0.5;
    Numbers { scales: [scale; 2], values: signed(point, packed_signs(packed)) }
}

fn iq3_s(block: &[u8], sub: usize) -> Numbers {
    let upper = usize::from(block[66 + sub]);
    let point = |group: usize| {
        let index = usize::from(block[2 + 8 * sub + group]) | (upper >> group & 1) << 8;
        IQ3_S_POINTS[index]
    };
    let signs = |eight: usize| block[74 + 4 * sub + eight];
    let scale = half(block, 0) * (1.0 + 2.0 * nibble(block[106 + sub / 2], sub % 2 == 1));
    Numbers { scales: [scale; 2], values: signed(point, signs) }
}

/// Eight trits plus or minus an eighth, times eight: what 16 is added to in the points.
fn shifted(point: impl Fn(usize) -> usize, down: impl Fn(usize) -> bool) -> [i8; SUB_BLOCK] {
    std::array::from_fn(|i| {
        let eight = i / 8;
        let trit = IQ1_POINTS[point(eight)].to_le_bytes()[i % 8];
        small(trit) - 16 + if down(eight) { -1 } else { 1 }
    })
}

fn iq1_s(block: &[u8], sub: usize) -> Numbers {
    let upper = short(block, 34 + 2 * sub);
    let point = |eight: usize| {
        usize::from(block[2 + 4 * sub + eight]) | usize::from(upper >> (3 * eight) & 7) << 8
    };
    let scale = half(block, 0) * f32::from(2 * (upper >> 12 & 7) + 1) / 8.0;
    Numbers { scales: [scale; 2], values: shifted(point, |_| upper & 0x8000 != 0) }
}

fn iq1_m(block: &[u8], sub: usize) -> Numbers {
    let scales: [u16; 4] = std::array::from_fn(|i| short(block, 48 + 2 * i));
    let bits = scales.iter().rev().fold(0, |bits, scale| bits << 4 | scale >> 12);
    let upper = |eight: usize| block[32 + 2 * sub + eight / 2] >> (4 * (eight % 2));
    let point =
        |eight: usize| usize::from(block[4 * sub + eight]) | usize::from(upper(eight) & 7) << 8;
    let scale = |half: usize| {
        let index = 2 * sub + half;
        let three = scales[index / 4] >> (3 * (index % 4)) & 7;
        f16::from_bits(bits).to_f32() * f32::from(2 * three + 1) / 8.0
    };
    Numbers { scales: [scale(0), scale(1)], values: shifted(point, |eight| upper(eight) & 8 != 0) }
}

fn iq4_xs(block: &[u8], sub: usize) -> Numbers {
    let upper = short(block, 2) >> (2 * sub) & 3;
    let lower = block[4 + sub / 2] >> (4 * (sub % 2)) & 15;
    let scale = half(block, 0) * (f32::from(u16::from(lower) | upper << 4) - 32.0);
    Numbers { scales: [scale; 2], values: from_table(&block[8 + 16 * sub..], &IQ4_VALUES) }
}

fn tq1_0(block: &[u8], sub: usize) -> Numbers {
    let values = std::array::from_fn(|i| {
        let index = SUB_BLOCK * sub + i;
        // Bytes of five trits each, then four of four: a round takes one trit of each byte.
        let (byte, round) = match index {
            0..160 => (block[index % 32], index / 32),
            160..240 => (block[32 + index % 16], (index - 160) / 16),
            _ => (block[48 + index % 4], (index - 240) / 4),
        };
        let turned = u16::from(byte.wrapping_mul([1, 3, 9, 27, 81][round]));
        let [_, trit] = (3 * turned).to_le_bytes();
        small(trit) - 1
    });
    Numbers { scales: [half(block, 52); 2], values }
}

fn nvfp4(block: &[u8], sub: usize) -> Numbers {
    let values = std::array::from_fn(|i| {
        let byte = block[4 + 16 * sub + 8 * (i / 16) + i % 8];
        MXFP4_VALUES[usize::from(if i % 16 < 8 { byte & 15 } else { byte >> 4 })]
    });
    Numbers {
        scales: [0, 1].map(|half| HALF_E4M3[usize::from(block[2 * sub + half] & 127)]),
        values,
    }
}
