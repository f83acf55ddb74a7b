//! Panels of quantized weights times many rows of signed bytes, in tile registers.
//!
//! Inside a sub-block products are summed as integers, exactly, and what follows is the chain of
//! additions of `linear/blocks.rs`: rows that are multiplied there are equal to the bit.

#![allow(clippy::needless_range_loop, reason = "small arrays that live in registers")]

use std::marker::PhantomData;
use std::mem::offset_of;

use super::activations::Block;
use super::ahead::Ahead;
use super::job::Sums;
use super::unpacked::{UNPACKED, Unpacked, unpack};
use crate::cpu::amx::{Amx, Shape, TILE_ROWS, Tiles};
use crate::cpu::{Kernel, LANES, Products};
use crate::packed::formats::{Format, PANEL};

/// Rows from which on tiles are faster than lanes.
pub(super) const TILES_FROM: usize = 32;
/// Tiles of sums that are made before any of them is added to the chains.
const TOGETHER: usize = 4;

/// One panel times all rows of `x [m][blocks]`, to `sums`.
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

/// Tiles of sums, `[TOGETHER][rows][16]`.
#[repr(C, align(64))]
struct Products4([[i32; LANES]; TOGETHER * TILE_ROWS]);

impl<F: Format> Kernel for TileBlocks<'_, F> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { amx, x, blocks, sums, .. } = self;
        assert_eq!(x.len(), sums.len() * blocks);
        let mut tiles = Tiles::new(amx);
        #[expect(clippy::large_stack_arrays, reason = "half of the first-level cache")]
        let mut room = [Unpacked::ZERO; UNPACKED];
        let mut products = Products4([[0; LANES]; TOGETHER * TILE_ROWS]);
        let (mut first, mut rest) = (0, self.panel);
        while !rest.is_empty() {
            let (cells, behind) = rest.split_at((UNPACKED / F::SUBS * F::CELL).min(rest.len()));
            let weights = unpack::<F, L>(l, cells, &mut room);
            for weights in &mut *weights {
                weights.make_signed::<F, L>(l);
            }
            let weights = &*weights;
            let next = if behind.is_empty() { self.next } else { behind };
            let mut ahead = Ahead::of(next, sums.len(), F::SUB);
            let rows = x.chunks(TILE_ROWS * blocks).zip(sums.chunks_mut(TILE_ROWS));
            for (x, sums) in rows {
                tiles.shape(Shape { rows: [sums.len(); 2], depth: 8 / F::HALVES });
                let mut part = Part { x, blocks, first, weights, products: &mut products };
                part.run::<F, L>(l, &mut tiles, &mut ahead, sums);
            }
            first += weights.len();
            rest = behind;
        }
    }
}

/// Up to sixteen rows against some sub-blocks.
struct Part<'a> {
    /// `[rows][blocks]`
    x: &'a [Block],
    blocks: usize,
    first: usize,
    weights: &'a [Unpacked],
    products: &'a mut Products4,
}

impl Part<'_> {
    #[inline(always)]
    fn run<F: Format, L: Products>(
        &mut self,
        l: L,
        tiles: &mut Tiles,
        ahead: &mut Ahead,
        sums: &mut [Sums],
    ) {
        let run = TOGETHER / F::HALVES;
        let lines = run * ahead.share(sums.len(), 1);
        for v in 0..PANEL / LANES {
            for (i, weights) in self.weights.chunks(run).enumerate() {
                let first = self.first + i * run;
                multiply::<F>(tiles, &self.x[first..], self.blocks, weights, v, self.products);
                ahead.fetch(l, lines);
                let (x, blocks, products) = (self.x, self.blocks, &*self.products);
                Add { x, blocks, first, weights, v, products }.run::<F, L>(l, sums);
            }
        }
    }
}

/// Sums of the products of some sub-blocks, sixteen columns from `v` on. `x` begins with the first
/// row's first block.
#[inline(always)]
fn multiply<F: Format>(
    tiles: &mut Tiles,
    x: &[Block],
    blocks: usize,
    weights: &[Unpacked],
    v: usize,
    sums: &mut Products4,
) {
    const { assert!(offset_of!(Block, values) == 0 && offset_of!(Unpacked, values) == 0) }
    let depth = 8 / F::HALVES;
    let mut left = [x.as_ptr().cast::<u8>(); TOGETHER];
    let mut right = [weights.as_ptr().cast::<u8>(); TOGETHER];
    for i in 0..TOGETHER {
        // Behind the last sub-block it is taken again, for sums that nobody asks for.
        let sub = (i / F::HALVES).min(weights.len() - 1);
        let group = i % F::HALVES * depth;
        left[i] = left[i].wrapping_add(sub * size_of::<Block>() + 4 * group);
        let column = (group * PANEL + v * LANES) * 4;
        right[i] = right[i].wrapping_add(sub * size_of::<Unpacked>() + column);
    }
    // SAFETY: the shape has the rows of `x`, which are `blocks` blocks apart; each tile lies in the
    // values of its blocks, and in the groups of its sub-block.
    unsafe {
        tiles.bytes_four(left, blocks * size_of::<Block>(), right, sums.0.as_mut_ptr().cast());
    }
}

/// Sub-blocks of which the sums are known, to be added to the chains of some rows.
struct Add<'a> {
    /// `[rows][blocks]`
    x: &'a [Block],
    blocks: usize,
    first: usize,
    weights: &'a [Unpacked],
    v: usize,
    products: &'a Products4,
}

impl Add<'_> {
    #[inline(always)]
    fn run<F: Format, L: Products>(self, l: L, sums: &mut [Sums]) {
        match self.weights.len() {
            4 => self.add::<F, L, 4>(l, sums),
            3 => self.add::<F, L, 3>(l, sums),
            2 => self.add::<F, L, 2>(l, sums),
            _ => self.add::<F, L, 1>(l, sums),
        }
    }

    /// Adds the sums of `N` sub-blocks.
    #[inline(always)]
    fn add<F: Format, L: Products, const N: usize>(&self, l: L, sums: &mut [Sums]) {
        let (rows, v) = (sums.len(), self.v);
        let weights: &[Unpacked; N] = self.weights.first_chunk().expect("counted by the caller");
        let mut scales = [[l.splat(0.0); 2]; N];
        let mut mins = [l.splat(0.0); N];
        for n in 0..N {
            for half in 0..F::HALVES {
                scales[n][half] = l.load(&weights[n].scales[half].as_chunks().0[v]);
            }
            mins[n] = l.load(&weights[n].mins.as_chunks().0[v]);
        }
        let products = &self.products.0[..N * F::HALVES * rows];
        for (row, chains) in sums.iter_mut().enumerate() {
            let x = &self.x[row * self.blocks + self.first..];
            let x: &[Block; N] = x.first_chunk().expect("rows have all blocks");
            let chain = &mut chains.0[v];
            let mut acc = if self.first == 0 { l.splat(0.0) } else { l.load(chain) };
            for n in 0..N {
                let row_scale = l.splat(x[n].scale);
                for half in 0..F::HALVES {
                    // SAFETY: `products` holds as many tiles of `rows` rows, see above.
                    let sum =
                        unsafe { products.get_unchecked((n * F::HALVES + half) * rows + row) };
                    let sum = l.load_ints(sum);
                    acc = if F::MINS {
                        let both =
                            l.mul_add(scales[n][half], sum, l.mul(mins[n], l.splat(x[n].sum)));
                        l.mul_add(both, row_scale, acc)
                    } else {
                        l.mul_add(sum, l.mul(scales[n][half], row_scale), acc)
                    };
                }
            }
            l.store(acc, chain);
        }
    }
}
