//! Panels of 8-bit weights with one scale for a row of the matrix, times many rows of signed bytes with one scale
//! each, in tile registers.
//!
//! Inside a part products are summed as integers, exactly, and what follows is the chain of additions of
//! `linear/scaled_rows.rs`: rows that are multiplied there are equal to the bit.

#![allow(clippy::needless_range_loop, reason = "small arrays that live in registers")]

use std::mem::offset_of;

use super::activations::{PART_BLOCKS, ScaledBlock};
use super::ahead::Ahead;
use super::scaled_rows::{ScaledPanel, add_scaled};
use crate::cpu::amx::bytes::{ByteSteps, ByteSums};
use crate::cpu::amx::{Amx, Fetch, TILE_ROWS, Tiles};
use crate::cpu::{Kernel, LANES, Products};
use crate::packed::formats::{Format, PANEL, Q8_0};

/// Rows that are multiplied together.
const ROWS: usize = 2 * TILE_ROWS;
/// Vectors of columns that are.
const VECTORS: usize = 2;

/// A panel times many rows.
pub(super) struct ScaledTiles<'a> {
    pub(super) amx: Amx,
    pub(super) of: ScaledPanel<'a>,
}

impl Kernel for ScaledTiles<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { amx, mut of } = self;
        assert_eq!(of.x.len(), of.sums.len() * of.blocks);
        let (mut tiles, mut sums) = (Tiles::new(amx), ByteSums::ZERO);
        for first in (0..of.blocks).step_by(PART_BLOCKS) {
            let (cells, mut ahead) = of.cells(first);
            for row in (0..of.sums.len()).step_by(ROWS) {
                let part = Part { first, cells, row };
                part.run(l, &mut of, (&mut tiles, &mut sums), &mut ahead);
            }
        }
    }
}

/// Some cells of the panel, and up to 32 rows that meet them.
struct Part<'a> {
    /// Cells before these.
    first: usize,
    cells: &'a [u8],
    row: usize,
}

impl Part<'_> {
    #[inline(always)]
    fn run<L: Products>(
        &self,
        l: L,
        of: &mut ScaledPanel<'_>,
        (tiles, sums): (&mut Tiles, &mut ByteSums),
        ahead: &mut Ahead,
    ) {
        const { assert!(offset_of!(ScaledBlock, values) == 0) }
        let rows = (of.sums.len() - self.row).min(ROWS);
        let steps = self.cells.len() / Q8_0::CELL;
        // From the first row's first block to the last row's last.
        let x = &of.x[self.row * of.blocks + self.first..][..(rows - 1) * of.blocks + steps];
        let lines = ahead.share(rows, VECTORS);
        for v in (0..PANEL / LANES).step_by(VECTORS) {
            let (next, lines) = ahead.take(steps, lines);
            let work = ByteSteps {
                steps,
                left: x.as_ptr().cast(),
                left_row: of.blocks * size_of::<ScaledBlock>(),
                left_step: size_of::<ScaledBlock>(),
                right: self.cells[Q8_0::SCALES + v * 4 * LANES..].as_ptr(),
                right_step: Q8_0::CELL,
                fetch: Fetch { next, lines },
            };
            // SAFETY: `x` holds `steps` blocks of each row, which begin with their values, and the part as many
            // cells, with eight rows of 256 bytes each behind the scales.
            unsafe { tiles.bytes_two_by_two(rows, &work, sums) }
            for j in 0..VECTORS {
                self.add(l, of, v + j, [&sums.0[0][j], &sums.0[1][j]]);
            }
        }
    }

    /// Adds sums of products to the chains of all rows, in vector `v` of the columns.
    #[inline(always)]
    fn add<L: Products>(
        &self,
        l: L,
        of: &mut ScaledPanel<'_>,
        v: usize,
        tiles: [&[[i32; LANES]; TILE_ROWS]; 2],
    ) {
        let scale = Q8_0::scale(l, &[], self.cells, 0, v);
        for (i, sums) in tiles.into_iter().flatten().enumerate().take(of.sums.len() - self.row) {
            let row = self.row + i;
            let x = &of.x[row * of.blocks + self.first];
            // What the products have too much, for values are stored unsigned. Exact, as the sums are.
            #[expect(clippy::cast_precision_loss, reason = "below 2^22")]
            let offset = l.splat((Q8_0::OFFSET * x.sum) as f32);
            let sum = l.sub(l.load_ints(sums), offset);
            let scales = [scale, l.splat(x.scale)];
            add_scaled(l, sum, scales, self.first == 0, &mut of.sums[row].0[v]);
        }
    }
}
