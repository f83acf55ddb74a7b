//! Panels of quantized weights times many rows of signed bytes, in tile registers.
//!
//! Inside a sub-block products are summed as integers, exactly, and what follows is the chain of
//! additions of `linear/blocks.rs`: rows that are multiplied there are equal to the bit.
//!
//! Loading a tile takes longer than multiplying it, and nothing else is done meanwhile. So a tile of rows meets all
//! columns once it is loaded. Where halves of a sub-block have scales of their own a product is half as much work for
//! the same time: lanes are faster there.

#![allow(clippy::needless_range_loop, reason = "small arrays that live in registers")]

use std::marker::PhantomData;
use std::mem::offset_of;

use super::activations::{Block, GROUPS};
use super::ahead::Ahead;
use super::job::Sums;
use super::unpacked::{UNPACKED, Unpacked, unpack};
use crate::cpu::amx::{Amx, Shape, TILE_ROWS, Tiles};
use crate::cpu::{Kernel, LANES, Products};
use crate::packed::formats::{Format, PANEL};

/// Rows from which on tile registers are faster than lanes: weights are taken apart first.
const FROM: usize = 48;
/// Sub-blocks that are multiplied before any of their sums is added to the chains.
const TOGETHER: usize = 2;
/// Tiles of columns.
const VECTORS: usize = PANEL / LANES;

/// One panel times all rows of `x [m][blocks]`, to `sums`. A sub-block has one scale.
pub(super) struct TileBlocks<'a, F> {
    pub(super) amx: Amx,
    pub(super) x: &'a [Block],
    /// Sub-blocks of a row.
    pub(super) blocks: usize,
    pub(super) panel: &'a [u8],
    /// What this thread will read next, most likely.
    pub(super) next: &'a [u8],
    pub(super) sums: &'a mut [Sums],
    pub(super) format: PhantomData<F>,
}

/// Tiles of sums of each sub-block, `[VECTORS][rows][16]`.
#[repr(C, align(64))]
struct TileSums([[[i32; LANES]; VECTORS * TILE_ROWS]; TOGETHER]);

impl<F: Format> TileBlocks<'_, F> {
    /// Whether so many rows are multiplied sooner here than in lanes.
    pub(super) const fn are_faster(rows: usize) -> bool {
        F::HALVES == 1 && rows >= FROM
    }
}

impl<F: Format> Kernel for TileBlocks<'_, F> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { amx, x, blocks, sums, .. } = self;
        assert_eq!((x.len(), F::HALVES), (sums.len() * blocks, 1));
        let mut tiles = Tiles::new(amx);
        #[expect(clippy::large_stack_arrays, reason = "half of the first-level cache")]
        let mut room = [Unpacked::ZERO; UNPACKED];
        let mut products = TileSums([[[0; LANES]; VECTORS * TILE_ROWS]; TOGETHER]);
        let (mut first, mut rest) = (0, self.panel);
        while !rest.is_empty() {
            let (cells, behind) = rest.split_at((UNPACKED / F::SUBS * F::CELL).min(rest.len()));
            let weights = unpack::<F, L, true>(l, cells, &mut room);
            let next = if behind.is_empty() { self.next } else { behind };
            let mut ahead = Ahead::of(next, sums.len(), F::SUB);
            for row in (0..sums.len()).step_by(TILE_ROWS) {
                let rows = row..sums.len().min(row + TILE_ROWS);
                tiles.shape(Shape { rows: [rows.len(); 2], depth: GROUPS });
                let lines = ahead.share(rows.len(), VECTORS);
                let sums = &mut sums[rows];
                for (i, weights) in weights.chunks(TOGETHER).enumerate() {
                    let sub = first + i * TOGETHER;
                    let run = Run { x: &x[row * blocks + sub..], blocks, fresh: sub == 0, weights };
                    run.multiply(&mut tiles, &mut products);
                    ahead.fetch(l, weights.len() * lines, TILE_ROWS);
                    run.add_all::<F, L>(l, &products, sums);
                }
            }
            first += weights.len();
            rest = behind;
        }
    }
}

/// Some rows against some sub-blocks.
struct Run<'a> {
    /// Begins with the first row's first block; rows are `blocks` blocks apart.
    x: &'a [Block],
    blocks: usize,
    /// Whether chains begin here.
    fresh: bool,
    weights: &'a [Unpacked],
}

impl Run<'_> {
    /// Sums of the products of all sub-blocks.
    #[inline(always)]
    fn multiply(&self, tiles: &mut Tiles, sums: &mut TileSums) {
        const { assert!(offset_of!(Block, values) == 0) }
        let row = self.blocks * size_of::<Block>();
        for (i, (weights, sums)) in self.weights.iter().zip(&mut sums.0).enumerate() {
            let left = self.x[i..].as_ptr().cast();
            let right = weights.values.as_ptr().cast();
            // SAFETY: the shape has the rows of `x`, which are `blocks` blocks apart; tiles lie in the values
            // of their blocks, and in the groups of their sub-block; `sums` has room for four tiles of
            // sixteen rows.
            unsafe { tiles.bytes_by_four(left, row, right, sums.as_mut_ptr().cast()) }
        }
    }

    #[inline(always)]
    fn add_all<F: Format, L: Products>(&self, l: L, products: &TileSums, sums: &mut [Sums]) {
        match self.weights.len() {
            2 => self.add::<F, L, 2>(l, products, sums),
            _ => self.add::<F, L, 1>(l, products, sums),
        }
    }

    /// Adds the sums of `N` sub-blocks to the chains of all rows.
    #[inline(always)]
    fn add<F: Format, L: Products, const N: usize>(
        &self,
        l: L,
        products: &TileSums,
        sums: &mut [Sums],
    ) {
        let weights: &[Unpacked; N] = self.weights.first_chunk().expect("counted by the caller");
        let mut scales = [[l.splat(0.0); VECTORS]; N];
        let mut mins = [[l.splat(0.0); VECTORS]; N];
        for n in 0..N {
            for v in 0..VECTORS {
                scales[n][v] = l.load(&weights[n].scales[0].as_chunks().0[v]);
                mins[n][v] = l.load(&weights[n].mins.as_chunks().0[v]);
            }
        }
        let rows = sums.len();
        for (row, chains) in sums.iter_mut().enumerate() {
            let x = &self.x[row * self.blocks..];
            let x: &[Block; N] = x.first_chunk().expect("rows have all blocks");
            for (v, chain) in chains.0.iter_mut().enumerate() {
                let mut acc = if self.fresh { l.splat(0.0) } else { l.load(chain) };
                for n in 0..N {
                    let (row_scale, scale) = (l.splat(x[n].scale), scales[n][v]);
                    // SAFETY: `rows` are at most those of a tile, as its shape says, and there are `VECTORS`
                    // tiles.
                    let sum = unsafe { products.0[n].get_unchecked(v * rows + row) };
                    let sum = l.load_ints(sum);
                    acc = if F::MINS {
                        let both = l.mul_add(scale, sum, l.mul(mins[n][v], l.splat(x[n].sum)));
                        l.mul_add(both, row_scale, acc)
                    } else {
                        l.mul_add(sum, l.mul(scale, row_scale), acc)
                    };
                }
                l.store(acc, chain);
            }
        }
    }
}
