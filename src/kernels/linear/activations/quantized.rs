//! Rows of signed bytes: with a scale for each block of 32 elements, or for each row.

use crate::cpu::{Kernel, LANES, Products};
use crate::packed::formats::SUB_BLOCK;

/// Groups of four elements of a block.
pub(crate) const GROUPS: usize = 8;

/// 32 elements of a row: `scale * values`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Block {
    pub(crate) values: [[i8; 4]; GROUPS],
    pub(crate) scale: f32,
    /// Sum of all values.
    pub(crate) sum: f32,
    /// Sums of the first and of the last sixteen values.
    pub(crate) sums: [i32; 2],
}

/// 32 elements of a row with one scale.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ScaledBlock {
    pub(crate) values: [[i8; 4]; GROUPS],
    pub(crate) row: RowScale,
}

/// What the bytes of a row stand for: `scale * values`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct RowScale {
    pub(crate) scale: f32,
    /// Of all values.
    pub(crate) sum: i32,
}

/// Blocks of a part of a row in tiles: a row of a tile holds four elements of each.
pub(crate) const PART_BLOCKS: usize = 16;

/// Four elements of each block of a part.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct ByteLine(pub(crate) [[i8; 4]; PART_BLOCKS]);

/// Rows of bytes with one scale each, in tiles.
#[cfg(target_arch = "x86_64")]
pub(crate) struct ByteTiles<'a> {
    /// `[m / 16][parts of K][8][rows of the block]`, the last part filled up with zeros.
    pub(crate) lines: &'a [ByteLine],
    /// `[m]`
    pub(crate) rows: &'a [RowScale],
}

pub(super) struct QuantizeRow<'a> {
    pub(super) row: &'a [f32],
    pub(super) out: &'a mut [Block],
}

impl Kernel for QuantizeRow<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        for (row, out) in self.row.as_chunks::<SUB_BLOCK>().0.iter().zip(self.out) {
            let largest = l.largest(magnitudes(l, row));
            let rounded = quantized(l, row, inverse(l, largest), &mut out.values);
            out.scale = largest / 127.0;
            // Sums of sixteen bytes are exact in f32.
            #[expect(clippy::cast_possible_truncation, reason = "integers below 2^11")]
            let sums = [l.sum(rounded[0]) as i32, l.sum(rounded[1]) as i32];
            out.sums = sums;
            #[expect(clippy::cast_precision_loss, reason = "below 2^13")]
            let sum = (sums[0] + sums[1]) as f32;
            out.sum = sum;
        }
    }
}

pub(super) struct ScaleRow<'a> {
    pub(super) row: &'a [f32],
    pub(super) out: &'a mut [ScaledBlock],
}

impl Kernel for ScaleRow<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let row = self.row.as_chunks::<SUB_BLOCK>().0;
        let scale = quantized_row(l, row, |block, values| self.out[block].values = values);
        for out in self.out {
            out.row = scale;
        }
    }
}

/// Rows of one block of tiles.
pub(super) struct ScaleTiles<'a> {
    /// `[rows][k]`
    pub(super) x: &'a [f32],
    pub(super) k: usize,
    /// See [`ByteTiles`].
    pub(super) lines: &'a mut [ByteLine],
    pub(super) scales: &'a mut [RowScale],
}

impl Kernel for ScaleTiles<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { x, k, lines, scales } = self;
        let (rows, blocks) = (scales.len(), k / SUB_BLOCK);
        let mut put = |row: usize, block: usize, values: [[i8; 4]; GROUPS]| {
            let mut line = block / PART_BLOCKS * GROUPS * rows + row;
            for group in values {
                lines[line].0[block % PART_BLOCKS] = group;
                line += rows;
            }
        };
        for (row, scale) in scales.iter_mut().enumerate() {
            let x = x[row * k..(row + 1) * k].as_chunks::<SUB_BLOCK>().0;
            *scale = quantized_row(l, x, |block, values| put(row, block, values));
            for block in blocks..blocks.next_multiple_of(PART_BLOCKS) {
                put(row, block, [[0; 4]; GROUPS]);
            }
        }
    }
}

/// Gives `put` the bytes of each block of a row, of which the largest is 127.
#[inline(always)]
fn quantized_row<L: Products>(
    l: L,
    row: &[[f32; SUB_BLOCK]],
    mut put: impl FnMut(usize, [[i8; 4]; GROUPS]),
) -> RowScale {
    let mut most = l.splat(0.0);
    for block in row {
        most = l.max(magnitudes(l, block), most);
    }
    let largest = l.largest(most);
    let inverse = inverse(l, largest);
    let mut sum = l.splat(0.0);
    for (i, block) in row.iter().enumerate() {
        let mut values = [[0; 4]; GROUPS];
        let rounded = quantized(l, block, inverse, &mut values);
        sum = l.add(sum, l.add(rounded[0], rounded[1]));
        put(i, values);
    }
    // Sums of up to 2^17 bytes are exact in f32.
    #[expect(clippy::cast_possible_truncation, reason = "an integer below 2^24")]
    let sum = l.sum(sum) as i32;
    RowScale { scale: largest / 127.0, sum }
}

/// The larger magnitude of each pair of elements that are sixteen apart.
#[inline(always)]
fn magnitudes<L: Products>(l: L, block: &[f32; SUB_BLOCK]) -> L::V {
    let halves = block.as_chunks::<LANES>().0;
    let (a, b) = (l.load(&halves[0]), l.load(&halves[1]));
    let negative = l.max(l.sub(l.splat(0.0), a), l.sub(l.splat(0.0), b));
    l.max(l.max(a, b), negative)
}

/// What makes `largest` 127.
#[inline(always)]
fn inverse<L: Products>(l: L, largest: f32) -> L::V {
    l.splat(if largest > 0.0 { 127.0 / largest } else { 0.0 })
}

/// Writes the elements of a block times `inverse` as bytes, and gives these as floats.
#[inline(always)]
fn quantized<L: Products>(
    l: L,
    block: &[f32; SUB_BLOCK],
    inverse: L::V,
    out: &mut [[i8; 4]; GROUPS],
) -> [L::V; 2] {
    let halves = block.as_chunks::<LANES>().0;
    let (a, b) = (l.load(&halves[0]), l.load(&halves[1]));
    let rounded = [l.round(l.mul(a, inverse)), l.round(l.mul(b, inverse))];
    let [first, second] = out.as_flattened_mut().as_chunks_mut::<LANES>().0 else {
        unreachable!("32 values are two vectors")
    };
    *first = l.narrow_i8(rounded[0]);
    *second = l.narrow_i8(rounded[1]);
    rounded
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use crate::random::Random;

    #[test]
    fn bytes_stand_for_the_row_within_half_a_step() {
        let mut row = Random::new(3).floats(3 * SUB_BLOCK);
        row[40..64].fill(0.0);
        row[SUB_BLOCK..40].fill(0.0);
        for level in Level::tested() {
            let mut activations = Activations::new(level, Rows::Floats(&row), 1, row.len());
            activations.prepare(Form::Bytes);
            for (block, row) in activations.bytes().iter().zip(row.chunks(SUB_BLOCK)) {
                let values = block.values.as_flattened();
                for (value, x) in values.iter().zip(row) {
                    let error = (f32::from(*value) * block.scale - x).abs();
                    assert!(error <= block.scale * 0.501, "{x} became {value} x {}", block.scale);
                }
                let sum = |part: &[i8]| part.iter().map(|v| i32::from(*v)).sum::<i32>();
                assert_eq!(block.sums, [sum(&values[..16]), sum(&values[16..])]);
                assert_eq!(f64::from(block.sum).to_bits(), f64::from(sum(values)).to_bits());
            }
        }
    }

    #[test]
    fn rows_with_one_scale_tell_their_sum() {
        let mut row = Random::new(6).floats(11 * SUB_BLOCK);
        row[3 * SUB_BLOCK..5 * SUB_BLOCK].fill(0.0);
        row[40] = -7.5;
        for level in Level::tested() {
            let mut activations = Activations::new(level, Rows::Floats(&row), 1, row.len());
            activations.prepare(Form::ScaledBytes);
            let blocks = activations.scaled_bytes();
            assert_eq!(blocks.len(), 11);
            assert_eq!(blocks[1].values[2][0], -127);
            for (block, row) in blocks.iter().zip(row.chunks(SUB_BLOCK)) {
                assert_eq!(block.row.scale.to_bits(), (7.5f32 / 127.0).to_bits());
                for (value, x) in block.values.as_flattened().iter().zip(row) {
                    let scale = block.row.scale;
                    let error = (f32::from(*value) * scale - x).abs();
                    assert!(error <= scale * 0.501, "{x} became {value} x {scale}");
                }
            }
            let values = blocks.iter().flat_map(|block| block.values.as_flattened());
            let sum: i32 = values.map(|value| i32::from(*value)).sum();
            assert!(blocks.iter().all(|block| block.row.sum == sum));
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn tiles_of_bytes_hold_a_group_of_each_block() {
        let (m, blocks) = (TILES_FROM + 7, PART_BLOCKS + 5);
        let k = blocks * SUB_BLOCK;
        let x: Vec<f32> = Random::new(8).floats(m * k);
        for level in Level::tested().into_iter().filter(|level| level.has_tiles()) {
            let mut activations = Activations::new(level, Rows::Floats(&x), m, k);
            activations.prepare(Form::ScaledBytes);
            let tiles = activations.byte_tiles(0..m).unwrap();
            for (row, x) in x.chunks(k).enumerate() {
                let mut alone = Activations::new(level, Rows::Floats(x), 1, k);
                alone.prepare(Form::ScaledBytes);
                let alone = alone.scaled_bytes();
                assert_eq!(tiles.rows[row].scale.to_bits(), alone[0].row.scale.to_bits());
                assert_eq!(tiles.rows[row].sum, alone[0].row.sum);
                let first = row - row % TILE_ROWS;
                let rows = TILE_ROWS.min(m - first);
                for block in 0..2 * PART_BLOCKS {
                    for group in 0..GROUPS {
                        let line = block / PART_BLOCKS * GROUPS + group;
                        let line = first * 2 * GROUPS + line * rows + row - first;
                        let expected = alone.get(block).map_or([0; 4], |block| block.values[group]);
                        assert_eq!(tiles.lines[line].0[block % PART_BLOCKS], expected);
                    }
                }
            }
        }
    }
}
