//! Activation rows in the form that a kind of weights is multiplied with.
//!
//! f32 and f16 weights meet f32 rows. bf16 weights meet rows rounded to bf16, which are f32 again
//! where a level multiplies nothing else. Quantized weights meet rows of signed bytes with one scale
//! per 32 elements, as in llama.cpp's products, or per row, as in vLLM's of W8A8: the largest
//! element becomes 127. A row's form depends on that row alone.

use std::mem::MaybeUninit;
use std::ops::Range;

use candle_core::quantized::GgmlDType;
use half::bf16;
use sconce_blocks::Kind;

use crate::cpu::{Element, Kernel, LANES, Level, Products, load_tail};
use crate::fresh::{Parts, filled};
use crate::packed::formats::{SUB_BLOCK, with_format};
use crate::pool;

/// Fewer elements are converted on the calling thread.
const PARALLEL_FROM: usize = 1 << 14;
/// Rows of one chunk.
const CHUNK_ROWS: usize = 8;
/// Rows of a block of tiles.
pub(super) const TILE_ROWS: usize = 16;
/// Elements of K in a row of a tile of bf16.
pub(super) const TILE_STEP: usize = 32;

/// Rows `[m, k]` as they are given.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    Floats(&'a [f32]),
    /// Rounded to bf16 already, for what is multiplied with such rows alone. `k` is even.
    Rounded(&'a [bf16]),
    /// Rounded and cut into tiles already; `k` divides by 32. See [`Activations::tiles`].
    Tiles(&'a [bf16]),
}

/// Rows `[m, k]`, converted at most once to each form that is asked for.
pub(super) struct Activations<'a> {
    rows: Rows<'a>,
    pub(super) m: usize,
    pub(super) k: usize,
    level: Level,
    pairs: Option<Vec<[bf16; 2]>>,
    wide_pairs: Option<Vec<[f32; 2]>>,
    tiles: Option<Vec<bf16>>,
    bytes: Option<Vec<Block>>,
    scaled: Option<Vec<ScaledBlock>>,
}

/// 32 elements of a row: `scale * values`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Block {
    pub(super) values: [[i8; 4]; 8],
    pub(super) scale: f32,
    /// Sum of all values.
    pub(super) sum: f32,
    /// Sums of the first and of the last sixteen values.
    pub(super) sums: [i32; 2],
}

/// Blocks of a part of a row with one scale: products are summed as integers inside of it, below 2^24, so that sums are
/// exact in f32, too.
pub(super) const PART_BLOCKS: usize = 8;

/// 32 elements of a row with one scale: `scale * values`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct ScaledBlock {
    pub(super) values: [[i8; 4]; 8],
    /// The row's.
    pub(super) scale: f32,
    /// Sum of all values of the part that begins here; 0 inside of one.
    pub(super) sum: i32,
}

/// What products of a kind run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Floats,
    Pairs,
    WidePairs,
    Tiles,
    /// With a scale per 32 elements.
    Bytes,
    /// With a scale per row.
    ScaledBytes,
}

impl Form {
    pub(super) fn of(level: Level, kind: Kind) -> Self {
        match kind {
            Kind::Ggml(GgmlDType::BF16) if level.has_tiles() => Self::Tiles,
            Kind::Ggml(GgmlDType::BF16) if level.multiplies_pairs() => Self::Pairs,
            Kind::Ggml(GgmlDType::BF16) => Self::WidePairs,
            Kind::W8A8 => Self::ScaledBytes,
            _ => with_format!(kind, _F => Self::Bytes, Self::Floats),
        }
    }
}

/// Where the elements of a row from a multiple of 32 columns on lie in tiles of `m` rows as wide as
/// `width`, up to the next one: see [`Activations::tiles`].
#[inline(always)]
pub(super) fn place_in_tiles(m: usize, width: usize, row: usize, column: usize) -> usize {
    let (block, within) = (row - row % TILE_ROWS, row % TILE_ROWS);
    let rows = TILE_ROWS.min(m - block);
    block * width + (column / TILE_STEP * rows + within) * TILE_STEP
}

impl<'a> Activations<'a> {
    pub(super) fn new(level: Level, rows: Rows<'a>, m: usize, k: usize) -> Self {
        let (pairs, wide_pairs, tiles, bytes, scaled) = (None, None, None, None, None);
        Self { rows, m, k, level, pairs, wide_pairs, tiles, bytes, scaled }
    }

    /// Converts the rows to `form`, on all threads if there are many.
    pub(super) fn prepare(&mut self, form: Form) {
        match (form, self.rows) {
            (Form::Pairs, Rows::Floats(rows)) if self.pairs.is_none() => {
                self.pairs = Some(self.round(rows));
            }
            (Form::WidePairs, _) if self.wide_pairs.is_none() => {
                self.wide_pairs = Some(self.round_wide());
            }
            (Form::Bytes, _) if self.bytes.is_none() => self.bytes = Some(self.quantize()),
            (Form::ScaledBytes, _) if self.scaled.is_none() => self.scaled = Some(self.scale()),
            (Form::Tiles, Rows::Floats(rows)) if self.tiles.is_none() => {
                self.tiles = Some(self.cut(rows));
            }
            (Form::Tiles, Rows::Rounded(rows)) if self.tiles.is_none() => {
                self.tiles = Some(self.cut(rows));
            }
            _ => {}
        }
    }

    /// `[m][k]` floats.
    pub(super) fn floats(&self) -> &'a [f32] {
        match self.rows {
            Rows::Floats(rows) => rows,
            Rows::Rounded(_) | Rows::Tiles(_) => {
                unreachable!("rounded rows meet no weights that take floats")
            }
        }
    }

    /// `[m][k / 2]` pairs, the last of an odd row filled up with zero.
    pub(super) fn pairs(&self) -> &[[bf16; 2]] {
        match self.rows {
            Rows::Rounded(rows) => rows.as_chunks().0,
            _ => self.pairs.as_ref().expect("rows are prepared before the product"),
        }
    }

    /// As [`Self::pairs`], each widened to f32.
    pub(super) fn wide_pairs(&self) -> &[[f32; 2]] {
        self.wide_pairs.as_ref().expect("rows are prepared before the product")
    }

    /// Rows rounded to bf16, `[m / 16][k / 32][rows of the block][32]`, K filled up with zeros.
    #[cfg(any(target_arch = "x86_64", test))]
    pub(super) fn tiles(&self) -> &[bf16] {
        match self.rows {
            Rows::Tiles(tiles) => tiles,
            _ => self.tiles.as_ref().expect("rows are prepared before the product"),
        }
    }

    /// `[m][k / 32]` blocks; only whole blocks of K are there.
    pub(super) fn bytes(&self) -> &[Block] {
        self.bytes.as_ref().expect("rows are prepared before the product")
    }

    /// `[m][k / 32]` blocks of rows with one scale; only whole blocks of K are there.
    pub(super) fn scaled_bytes(&self) -> &[ScaledBlock] {
        self.scaled.as_ref().expect("rows are prepared before the product")
    }

    fn round(&self, rows: &[f32]) -> Vec<[bf16; 2]> {
        let width = self.k.div_ceil(2);
        let level = self.level;
        // SAFETY: `RoundRow` writes every pair of its row.
        unsafe { self.convert(rows, 1, width, |row, out| level.run(RoundRow { row, out })) }
    }

    fn round_wide(&self) -> Vec<[f32; 2]> {
        let width = self.k.div_ceil(2);
        let level = self.level;
        // SAFETY: `RoundRowWide` writes every pair of its row.
        unsafe {
            self.convert(self.floats(), 1, width, |row, out| level.run(RoundRowWide { row, out }))
        }
    }

    fn cut<T: Element>(&self, rows: &[T]) -> Vec<bf16> {
        let (k, level) = (self.k, self.level);
        let width = k.next_multiple_of(TILE_STEP);
        // SAFETY: `CutTiles` writes every element of its rows.
        unsafe { self.convert(rows, TILE_ROWS, width, |x, out| level.run(CutTiles { x, k, out })) }
    }

    fn quantize(&self) -> Vec<Block> {
        let level = self.level;
        let convert = |row: &[f32], out: &mut [Block]| level.run(QuantizeRow { row, out });
        // SAFETY: `QuantizeRow` writes every block of its row.
        unsafe { self.convert(self.floats(), 1, self.k / SUB_BLOCK, convert) }
    }

    fn scale(&self) -> Vec<ScaledBlock> {
        let level = self.level;
        let convert = |row: &[f32], out: &mut [ScaledBlock]| level.run(ScaleRow { row, out });
        // SAFETY: `ScaleRow` writes every block of its row.
        unsafe { self.convert(self.floats(), 1, self.k / SUB_BLOCK, convert) }
    }

    /// A converted row of `width` elements for each row; `together` rows are converted at once.
    ///
    /// # Safety
    ///
    /// `convert` must write every element of its output.
    unsafe fn convert<X: Sync, T: Send + Copy>(
        &self,
        all_rows: &[X],
        together: usize,
        width: usize,
        convert: impl Fn(&[X], &mut [T]) + Sync,
    ) -> Vec<T> {
        let fill = |all: &Parts<'_, MaybeUninit<T>>| {
            self.each_chunk(together, |rows| {
                // SAFETY: every call has rows of its own.
                let out = unsafe { all.part(rows.start * width..rows.end * width) };
                let from = &all_rows[rows.start * self.k..rows.end * self.k];
                let from = from.chunks((together * self.k).max(1));
                for (row, out) in from.zip(out.chunks_mut((together * width).max(1))) {
                    // SAFETY: `T` is `Copy`, so nothing is dropped, and every element is written
                    // before it is read (the caller's promise).
                    convert(row, unsafe { out.assume_init_mut() });
                }
            });
        };
        // SAFETY: the chunks cover all rows, and each element is written.
        unsafe { filled(self.m * width, fill) }
    }

    /// Calls `run` with ranges of rows, on all threads if there are many; all but the last hold a
    /// multiple of `together`.
    fn each_chunk(&self, together: usize, run: impl Fn(Range<usize>) + Sync) {
        if self.m * self.k < PARALLEL_FROM {
            return run(0..self.m);
        }
        let rows = CHUNK_ROWS.next_multiple_of(together);
        pool::for_each_chunk(self.m.div_ceil(rows), |chunk| {
            run(chunk * rows..self.m.min((chunk + 1) * rows));
        });
    }
}

struct RoundRow<'a> {
    row: &'a [f32],
    out: &'a mut [[bf16; 2]],
}

impl Kernel for RoundRow<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let (row, tail) = self.row.as_chunks::<LANES>();
        let (out, out_tail) = self.out.as_flattened_mut().as_chunks_mut::<LANES>();
        for (row, out) in row.iter().zip(&mut *out) {
            *out = l.narrow_bf16(l.load(row));
        }
        let last = l.narrow_bf16(load_tail(l, tail));
        match out.get_mut(row.len()) {
            // Fifteen elements and the zero that fills them up.
            Some(whole) => *whole = last,
            None => out_tail.copy_from_slice(&last[..out_tail.len()]),
        }
    }
}

struct RoundRowWide<'a> {
    row: &'a [f32],
    out: &'a mut [[f32; 2]],
}

impl Kernel for RoundRowWide<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let (row, tail) = self.row.as_chunks::<LANES>();
        let (out, out_tail) = self.out.as_flattened_mut().as_chunks_mut::<LANES>();
        for (row, out) in row.iter().zip(&mut *out) {
            l.store(l.load_bf16(&l.narrow_bf16(l.load(row))), out);
        }
        let mut last = [0.0; LANES];
        l.store(l.load_bf16(&l.narrow_bf16(load_tail(l, tail))), &mut last);
        match out.get_mut(row.len()) {
            // Fifteen elements and the zero that fills them up.
            Some(whole) => *whole = last,
            None => out_tail.copy_from_slice(&last[..out_tail.len()]),
        }
    }
}

/// Rows of one block of tiles, rounded if they aren't yet.
struct CutTiles<'a, T> {
    /// `[rows][k]`
    x: &'a [T],
    k: usize,
    /// `[k / 32][rows][32]`
    out: &'a mut [bf16],
}

impl<T: Element> Kernel for CutTiles<'_, T> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let rows = self.x.len() / self.k.max(1);
        for (r, row) in self.x.chunks_exact(self.k.max(1)).enumerate() {
            for (step, row) in row.chunks(TILE_STEP).enumerate() {
                let out = &mut self.out[(step * rows + r) * TILE_STEP..][..TILE_STEP];
                for (v, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                    let row = row.get(v * LANES..).unwrap_or_default();
                    let lanes = match row.first_chunk::<LANES>() {
                        Some(whole) => T::load(l, whole),
                        None => load_tail(l, row),
                    };
                    *out = l.narrow_bf16(lanes);
                }
            }
        }
    }
}

struct QuantizeRow<'a> {
    row: &'a [f32],
    out: &'a mut [Block],
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

struct ScaleRow<'a> {
    row: &'a [f32],
    out: &'a mut [ScaledBlock],
}

impl Kernel for ScaleRow<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let row = self.row.as_chunks::<SUB_BLOCK>().0;
        let mut most = l.splat(0.0);
        for block in row {
            most = l.max(magnitudes(l, block), most);
        }
        let largest = l.largest(most);
        let inverse = inverse(l, largest);
        for (part, out) in row.chunks(PART_BLOCKS).zip(self.out.chunks_mut(PART_BLOCKS)) {
            // Sums of 256 bytes are exact in f32.
            let mut sum = l.splat(0.0);
            for (block, out) in part.iter().zip(&mut *out) {
                let rounded = quantized(l, block, inverse, &mut out.values);
                sum = l.add(sum, l.add(rounded[0], rounded[1]));
                (out.scale, out.sum) = (largest / 127.0, 0);
            }
            #[expect(clippy::cast_possible_truncation, reason = "an integer below 2^15")]
            let sum = l.sum(sum) as i32;
            out[0].sum = sum;
        }
    }
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
    out: &mut [[i8; 4]; 8],
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
    use super::*;
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
    fn rows_with_one_scale_tell_the_sums_of_their_parts() {
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
                assert_eq!(block.scale.to_bits(), (7.5f32 / 127.0).to_bits());
                for (value, x) in block.values.as_flattened().iter().zip(row) {
                    let error = (f32::from(*value) * block.scale - x).abs();
                    assert!(error <= block.scale * 0.501, "{x} became {value} x {}", block.scale);
                }
            }
            for part in blocks.chunks(PART_BLOCKS) {
                let values = part.iter().flat_map(|block| block.values.as_flattened());
                assert_eq!(part[0].sum, values.map(|value| i32::from(*value)).sum::<i32>());
                assert!(part[1..].iter().all(|block| block.sum == 0));
            }
        }
    }

    #[test]
    fn an_odd_row_of_pairs_ends_with_zero() {
        for k in [1, 15, 16, 31, 33] {
            let row: Vec<f32> = Random::new(4).floats(2 * k);
            for level in Level::tested() {
                let mut activations = Activations::new(level, Rows::Floats(&row), 2, k);
                activations.prepare(Form::Pairs);
                activations.prepare(Form::WidePairs);
                let width = k.div_ceil(2);
                for (i, row) in row.chunks(k).enumerate() {
                    let pairs = &activations.pairs()[i * width..(i + 1) * width];
                    let mut expected: Vec<bf16> = row.iter().map(|x| bf16::from_f32(*x)).collect();
                    expected.resize(2 * width, bf16::ZERO);
                    assert_eq!(pairs.as_flattened(), expected);
                    let wide = &activations.wide_pairs()[i * width..(i + 1) * width];
                    let expected: Vec<f32> = expected.into_iter().map(bf16::to_f32).collect();
                    assert_eq!(wide.as_flattened(), expected);
                }
            }
        }
    }

    #[test]
    fn tiles_hold_blocks_of_rows_step_by_step() {
        let (m, k) = (19, 33);
        let row: Vec<f32> = Random::new(5).floats(m * k);
        for level in Level::tested() {
            let mut activations = Activations::new(level, Rows::Floats(&row), m, k);
            activations.prepare(Form::Tiles);
            let tiles = activations.tiles();
            assert_eq!(tiles.len(), m * 2 * TILE_STEP);
            for r in 0..m {
                let (block, r_in) = (r / TILE_ROWS, r % TILE_ROWS);
                let rows = (m - block * TILE_ROWS).min(TILE_ROWS);
                for i in 0..2 * TILE_STEP {
                    let at = block * TILE_ROWS * 2 * TILE_STEP
                        + (i / TILE_STEP * rows + r_in) * TILE_STEP
                        + i % TILE_STEP;
                    let expected = if i < k { bf16::from_f32(row[r * k + i]) } else { bf16::ZERO };
                    assert_eq!(tiles[at], expected, "row {r}, element {i}");
                }
            }
        }
    }
}
