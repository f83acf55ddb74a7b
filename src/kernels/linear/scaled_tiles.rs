//! Panels of 8-bit weights with one scale for a row of the matrix, times many rows of signed bytes with one scale
//! each, in tile registers.
//!
//! A tile of the right side has its rows in as many cells, one behind the other in each: four elements of K for each
//! column. So are the rows of the left side laid out, see [`ByteTiles`]. Sums are those of `linear/scaled_rows.rs`, to
//! the bit: they are exact in any order.

use super::activations::{ByteLine, ByteTiles, GROUPS, PART_BLOCKS, RowScale};
use super::ahead::Ahead;
use super::job::Sums;
use super::scaled_rows::scaled;
use crate::cpu::amx::{Amx, Begin, Fetch, Shape, Steps, TILE_ROWS, Tiles};
use crate::cpu::{Kernel, LANES, Products};
use crate::packed::formats::{Format, PANEL, Q8_0};

/// Steps of a part: a cell has a row for each group.
const STEPS: usize = GROUPS;
/// Bytes of a part of a panel.
const PART: usize = PART_BLOCKS * Q8_0::CELL;

/// A panel times many rows.
pub(super) struct ScaledTiles<'a> {
    pub(super) amx: Amx,
    /// Of `sums.len()` rows.
    pub(super) x: ByteTiles<'a>,
    /// Cells of Q8_0 whose columns have one scale in all of them.
    pub(super) panel: &'a [u8],
    /// What this thread will read next, most likely.
    pub(super) next: &'a [u8],
    pub(super) sums: &'a mut [Sums],
}

impl Kernel for ScaledTiles<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { amx, x, panel, next, sums } = self;
        let parts = panel.len().div_ceil(PART);
        assert_eq!(x.rows.len(), sums.len());
        assert_eq!(x.lines.len(), sums.len() * parts * STEPS);
        let mut tiles = Tiles::new(amx);
        for (index, cells) in panel.chunks(PART).enumerate() {
            let next = if index + 1 < parts { &panel[(index + 1) * PART..] } else { next };
            let step = PART.min(next.len()).div_ceil(STEPS);
            let mut ahead = Ahead::of_part(next, PART, sums.len(), step);
            // Sums of a single tile of rows stay in their registers, which are cut anew where a part is shorter.
            let alone = sums.len() <= TILE_ROWS;
            let begin = match index {
                0 => Begin::Zero,
                _ if alone && cells.len() == PART => Begin::Kept,
                _ => Begin::Stored,
            };
            let store = !alone || (index + 2) * PART > panel.len();
            let part = Part { index, parts, cells, begin, store };
            for row in (0..sums.len()).step_by(2 * TILE_ROWS) {
                let rows = row..sums.len().min(row + 2 * TILE_ROWS);
                let lines = &x.lines[rows.start * parts * STEPS..rows.end * parts * STEPS];
                let sums = &mut sums[rows.clone()];
                part.multiply(&mut tiles, lines, sums, &mut ahead);
                if index + 1 == parts {
                    scale(l, cells, &x.rows[rows], sums);
                }
            }
        }
    }
}

/// Some cells of a panel, which all rows meet before any of them goes on.
struct Part<'a> {
    index: usize,
    /// How many there are.
    parts: usize,
    cells: &'a [u8],
    begin: Begin,
    /// Whether sums are stored.
    store: bool,
}

impl Part<'_> {
    /// Goes on with the sums of up to two tiles of rows.
    fn multiply(
        &self,
        tiles: &mut Tiles,
        lines: &[ByteLine],
        sums: &mut [Sums],
        ahead: &mut Ahead,
    ) {
        const { assert!(size_of::<Sums>() == PANEL * size_of::<i32>()) }
        let first = sums.len().min(TILE_ROWS);
        let second = sums.len() - first;
        let rows = [first, if second > 0 { second } else { first }];
        tiles.shape(Shape { rows, depth: self.cells.len() / Q8_0::CELL });
        let (lines, behind) = lines.split_at(first * self.parts * STEPS);
        let left = &lines[self.index * STEPS * first..][..STEPS * first];
        let vectors = if second > 0 { 2 } else { 4 };
        let fetched = ahead.share(sums.len(), vectors);
        for v in (0..PANEL / LANES).step_by(vectors) {
            let (next, lines) = ahead.take(STEPS, fetched);
            let work = Steps {
                count: STEPS,
                left: left.as_ptr().cast(),
                right: self.cells[Q8_0::SCALES + v * 4 * LANES..].as_ptr(),
                right_row: Q8_0::CELL,
                sums: sums.as_mut_ptr().cast::<f32>().wrapping_add(v * LANES),
                begin: self.begin,
                store: self.store,
                fetch: Fetch { next, lines },
            };
            // SAFETY: the shape was set; the slices hold all steps of their rows, each cell has eight rows of 256 bytes
            // behind its scales, and `sums` the rows.
            unsafe {
                if second > 0 {
                    let behind = &behind[self.index * STEPS * second..][..STEPS * second];
                    tiles.bytes_two_by_two(&work, behind.as_ptr().cast());
                } else {
                    tiles.bytes_one_by_four(&work);
                }
            }
        }
    }
}

/// Sums of products to what they stand for.
#[inline(always)]
fn scale<L: Products>(l: L, cells: &[u8], rows: &[RowScale], sums: &mut [Sums]) {
    let mut scales = [l.splat(0.0); PANEL / LANES];
    for (v, scale) in scales.iter_mut().enumerate() {
        *scale = Q8_0::scale(l, &[], cells, 0, v);
    }
    for (row, sums) in rows.iter().zip(sums) {
        // What the products have too much, for values are stored unsigned.
        let offset = l.splat_int(Q8_0::OFFSET.wrapping_mul(row.sum).wrapping_neg());
        for (sums, scale) in sums.0.iter_mut().zip(scales) {
            let exact = l.add_ints(l.ints_of_bits(sums), offset);
            l.store(scaled(l, exact, [scale, l.splat(row.scale)]), sums);
        }
    }
}
