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

#[cfg(target_arch = "x86_64")]
pub(super) use self::quantized::ByteTiles;
pub(super) use self::quantized::{Block, ByteLine, GROUPS, PART_BLOCKS, RowScale, ScaledBlock};
use self::quantized::{QuantizeRow, ScaleRow, ScaleTiles};
use self::rounded::{CutTiles, RoundRow, RoundRowWide};
pub(super) use self::rounded::{TILE_ROWS, TILE_STEP, place_in_tiles};
use crate::cpu::{Element, Level};
use crate::fresh::{Parts, filled};
use crate::packed::formats::{SUB_BLOCK, with_format};
use crate::pool;

mod quantized;
mod rounded;

/// Fewer elements are converted on the calling thread.
const PARALLEL_FROM: usize = 1 << 14;
/// Rows of one chunk.
const CHUNK_ROWS: usize = 8;
/// Rows from which on products of rows with one scale are faster in tile registers than in lanes.
const TILES_FROM: usize = 32;

/// Rows `[m, k]` as they are given.
#[derive(Clone, Copy)]
pub(super) enum Rows<'a> {
    Floats(&'a [f32]),
    /// Rounded to bf16 already, for what is multiplied with such rows alone. `k` is even.
    Rounded(&'a [bf16]),
    /// Rounded and cut into tiles already; `k` divides by 32. See [`Activations::tiles`].
    #[cfg_attr(
        not(any(target_arch = "x86_64", test)),
        expect(dead_code, reason = "no level has tiles")
    )]
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
    byte_tiles: Option<(Vec<ByteLine>, Vec<RowScale>)>,
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

impl<'a> Activations<'a> {
    pub(super) fn new(level: Level, rows: Rows<'a>, m: usize, k: usize) -> Self {
        let (pairs, wide_pairs, tiles) = (None, None, None);
        let (bytes, scaled, byte_tiles) = (None, None, None);
        Self { rows, m, k, level, pairs, wide_pairs, tiles, bytes, scaled, byte_tiles }
    }

    /// Converts the rows to `form`, on all threads if there are many.
    pub(super) fn prepare(&mut self, form: Form) {
        let in_tiles = self.level.has_tiles() && self.m >= TILES_FROM;
        match (form, self.rows) {
            (Form::Pairs, Rows::Floats(rows)) if self.pairs.is_none() => {
                self.pairs = Some(self.round(rows));
            }
            (Form::WidePairs, _) if self.wide_pairs.is_none() => {
                self.wide_pairs = Some(self.round_wide());
            }
            (Form::Bytes, _) if self.bytes.is_none() => self.bytes = Some(self.quantize()),
            (Form::ScaledBytes, _) if in_tiles && self.byte_tiles.is_none() => {
                self.byte_tiles = Some(self.scale_in_tiles());
            }
            (Form::ScaledBytes, _) if !in_tiles && self.scaled.is_none() => {
                self.scaled = Some(self.scale());
            }
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

    /// Some rows of bytes with one scale each, the first of them a multiple of 16, if they lie in tiles.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn byte_tiles(&self, rows: Range<usize>) -> Option<ByteTiles<'_>> {
        let (lines, scales) = self.byte_tiles.as_ref()?;
        let width = lines.len() / scales.len().max(1);
        let lines = &lines[rows.start * width..rows.end * width];
        Some(ByteTiles { lines, rows: &scales[rows] })
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

    fn scale_in_tiles(&self) -> (Vec<ByteLine>, Vec<RowScale>) {
        let (floats, k, level) = (self.floats(), self.k, self.level);
        let width = (k / SUB_BLOCK).div_ceil(PART_BLOCKS) * GROUPS;
        let mut scales = Vec::new();
        let fill_lines = |lines: &Parts<'_, MaybeUninit<ByteLine>>| {
            let fill_scales = |scales: &Parts<'_, MaybeUninit<RowScale>>| {
                self.each_chunk(TILE_ROWS, |rows| {
                    for first in rows.clone().step_by(TILE_ROWS) {
                        let rows = first..rows.end.min(first + TILE_ROWS);
                        let x = &floats[rows.start * k..rows.end * k];
                        // SAFETY: every call has rows of its own, and writes what it is given.
                        let (lines, scales) = unsafe {
                            let lines = lines.part(rows.start * width..rows.end * width);
                            (lines.assume_init_mut(), scales.part(rows).assume_init_mut())
                        };
                        level.run(ScaleTiles { x, k, lines, scales });
                    }
                });
            };
            // SAFETY: `ScaleTiles` writes the scales of all its rows.
            scales = unsafe { filled(self.m, fill_scales) };
        };
        // SAFETY: `ScaleTiles` writes all lines of its rows.
        let lines = unsafe { filled(self.m * width, fill_lines) };
        (lines, scales)
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
