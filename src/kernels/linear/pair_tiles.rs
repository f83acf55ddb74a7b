//! Panels of bf16 times rows rounded to bf16, in tile registers. Rows lie in tiles, too:
//! `[m / 16][steps of K][rows of the block][64 bytes]`, the last block with the rows that are left.
//!
//! All rows, even a single one, take the same steps along K, so a row's sums don't depend on the rows
//! beside it.

use std::ops::Range;

use half::bf16;

use super::activations::{self, TILE_STEP as STEP};
use super::ahead::{Ahead, PART};
use super::job::Sums;
use crate::cpu::amx::{Amx, Begin, Fetch, PANEL_ROW, Shape, Steps, TILE_ROWS, Tiles};
use crate::cpu::{Kernel, LANES, Products};
use crate::packed::formats::PANEL;
use crate::packed::twelve_bits::{ROW_BYTES, Row, TwelveBitPanel};

/// Bytes of a panel that a step reads.
const STEP_BYTES: usize = STEP * PANEL * size_of::<bf16>();
/// Rows of a panel that a step reads.
const STEP_ROWS: usize = STEP / 2;
/// Steps of a part where rows are many: tiles of sums change rarely, and what stays in the
/// second-level cache comes soon enough.
const MANY_STEPS: usize = 32;
/// Steps of a part where rows are one tile: the next part is fetched meanwhile.
const FEW_STEPS: usize = PART / STEP_BYTES;

/// One panel times all rows of `x`, to `sums`.
pub(super) struct TilePanel<'a> {
    pub(super) amx: Amx,
    /// Tiles of `sums.len()` rows, K filled up with zeros to whole steps.
    pub(super) x: &'a [bf16],
    pub(super) weights: Weights<'a>,
    /// Elements of K, which begin and, unless they are the last, end with whole steps. Sums begin where K does.
    pub(super) elements: Range<usize>,
    /// What this thread will read next, most likely.
    pub(super) next: &'a [u8],
    pub(super) sums: &'a mut [Sums],
}

/// A panel as it lies in memory.
pub(super) enum Weights<'a> {
    Whole(&'a [u8]),
    /// And room for what is decoded.
    TwelveBits(TwelveBitPanel<'a>, &'a mut Vec<Row>),
}

/// A part of the panel, the first `first` steps before it being done.
struct Part<'a> {
    first: usize,
    bytes: &'a [u8],
    /// Steps of K whose sums are asked for.
    range: Range<usize>,
    ahead: Ahead,
}

impl Kernel for TilePanel<'_> {
    #[inline(always)]
    fn run<L: Products>(mut self, l: L) {
        const { assert!(TILE_ROWS == activations::TILE_ROWS) }
        let part = if self.sums.len() > TILE_ROWS { MANY_STEPS } else { FEW_STEPS };
        match std::mem::replace(&mut self.weights, Weights::Whole(&[])) {
            Weights::Whole(panel) => self.run_whole(panel, part),
            Weights::TwelveBits(panel, room) => self.run_decoded(l, &panel, room, part),
        }
    }
}

impl TilePanel<'_> {
    /// `part` steps at a time.
    fn run_whole(&mut self, panel: &[u8], part: usize) {
        let elements = self.elements.clone();
        let steps = panel.len().div_ceil(STEP_BYTES);
        assert_eq!(self.x.len(), self.sums.len() * steps * STEP);
        let mut tiles = Tiles::new(self.amx);
        let range = elements.start / STEP..elements.end.div_ceil(STEP);
        let whole = (panel.len() / STEP_BYTES).min(elements.end / STEP);
        for first in (range.start..whole).step_by(part) {
            let end = whole.min(first + part);
            let (before, after) = panel.split_at(end * STEP_BYTES);
            let next = if end * STEP >= elements.end { self.next } else { after };
            let ahead = Ahead::of_part(next, part * STEP_BYTES, self.sums.len(), STEP_BYTES);
            let bytes = &before[first * STEP_BYTES..];
            self.rows(&mut tiles, steps, Part { first, bytes, range: range.clone(), ahead });
        }
        if whole * STEP < elements.end {
            let mut last = [0; STEP_BYTES];
            let rest = &panel[whole * STEP_BYTES..];
            last[..rest.len()].copy_from_slice(rest);
            let ahead = Ahead::of(self.next, self.sums.len(), STEP_BYTES);
            self.rows(&mut tiles, steps, Part { first: whole, bytes: &last, range, ahead });
        }
    }

    /// As [`Self::run_whole`], of a panel in twelve bits.
    #[inline(always)]
    fn run_decoded<L: Products>(
        &mut self,
        l: L,
        panel: &TwelveBitPanel<'_>,
        room: &mut Vec<Row>,
        part: usize,
    ) {
        let steps = panel.rows().div_ceil(STEP_ROWS);
        assert_eq!(self.x.len(), self.sums.len() * steps * STEP);
        let mut tiles = Tiles::new(self.amx);
        let range = self.elements.start / STEP..self.elements.end.div_ceil(STEP);
        for first in range.clone().step_by(part) {
            let end = range.end.min(first + part);
            let bytes = bytes_of(panel.decode_to(l, first * STEP_ROWS..end * STEP_ROWS, room));
            let next = if end < range.end { panel.bytes_from(end * STEP_ROWS) } else { self.next };
            let step = STEP_ROWS * ROW_BYTES;
            let ahead = Ahead::of_part(next, part * step, self.sums.len(), step);
            self.rows(&mut tiles, steps, Part { first, bytes, range: range.clone(), ahead });
        }
    }

    /// All rows against a part, of `total` steps in all.
    fn rows(&mut self, tiles: &mut Tiles, total: usize, mut part: Part<'_>) {
        let m = self.sums.len();
        let mut row = 0;
        while row < m {
            let left = (m - row).min(2 * TILE_ROWS);
            let first = left.min(TILE_ROWS);
            let second = left - first;
            let rows = [first, if second > 0 { second } else { first }];
            tiles.shape(Shape { rows, depth: STEP / 2 });
            let vectors = if second > 0 { 2 } else { 4 };
            let steps = part.bytes.len() / STEP_BYTES;
            // Sums of a single tile of rows stay in their registers from part to part.
            let alone = m <= TILE_ROWS;
            let begin = match part.first {
                0 => Begin::Zero,
                first if alone && first > part.range.start => Begin::Kept,
                _ => Begin::Stored,
            };
            let store = !alone || part.first + steps == part.range.end;
            let x = &self.x[row * total * STEP..(row + left) * total * STEP];
            let (x, behind) = x.split_at(first * total * STEP);
            let x = &x[part.first * first * STEP..];
            let sums = &mut self.sums[row..row + left];
            for v in (0..PANEL / LANES).step_by(vectors) {
                let lines = part.ahead.share(left, vectors);
                let fetch = part.ahead.take(steps, lines);
                let work = Steps {
                    count: steps,
                    left: x.as_ptr().cast(),
                    right: part.bytes[v * LANES * 4..].as_ptr(),
                    right_row: PANEL_ROW,
                    sums: sums.as_mut_ptr().cast::<f32>().wrapping_add(v * LANES),
                    begin,
                    store,
                    fetch: Fetch { next: fetch.0, lines: fetch.1 },
                };
                // SAFETY: the shape was set; `x` and `behind` hold `steps` steps of their rows
                // (their lengths are checked by the slices), the part so many whole steps, and
                // `sums` the rows.
                unsafe {
                    if second > 0 {
                        let behind = behind[part.first * second * STEP..].as_ptr();
                        tiles.pairs_two_by_two(&work, behind.cast());
                    } else {
                        tiles.pairs_one_by_four(&work);
                    }
                }
            }
            row += left;
        }
    }
}

/// Weights as they lie in memory.
fn bytes_of(weights: &[[[bf16; 2]; PANEL]]) -> &[u8] {
    // SAFETY: numbers of two bytes without padding.
    unsafe { std::slice::from_raw_parts(weights.as_ptr().cast(), size_of_val(weights)) }
}
