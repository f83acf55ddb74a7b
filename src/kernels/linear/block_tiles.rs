//! Panels of quantized weights times many rows of signed bytes, in tile registers.
//!
//! Inside a sub-block products are summed as integers, exactly, and what follows is the chain of
//! additions of `linear/blocks.rs`: rows that are multiplied there are equal to the bit.

#![allow(clippy::needless_range_loop, reason = "small arrays that live in registers")]

use std::marker::PhantomData;
use std::mem::offset_of;
use std::ops::Range;

use super::activations::Block;
use super::ahead::Ahead;
use super::job::Sums;
use super::unpacked::{UNPACKED, Unpacked, unpack};
use crate::cpu::amx::{Amx, Shape, TILE_ROWS, Tiles};
use crate::cpu::{Kernel, LANES, Products};
use crate::packed::formats::{Format, PANEL};

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
        let mut products = [const { Products4([[0; LANES]; TOGETHER * TILE_ROWS]) }; 2];
        let (mut first, mut rest) = (0, self.panel);
        while !rest.is_empty() {
            let (cells, behind) = rest.split_at((UNPACKED / F::SUBS * F::CELL).min(rest.len()));
            let weights = unpack::<F, L>(l, cells, &mut room);
            for weights in &mut *weights {
                weights.make_signed::<F, L>(l);
            }
            let weights = &*weights;
            let next = if behind.is_empty() { self.next } else { behind };
            let ahead = Ahead::of(next, sums.len(), F::SUB);
            let part = Part { x, blocks, first, weights };
            part.run::<F, L>(l, &mut tiles, ahead, &mut products, sums);
            first += weights.len();
            rest = behind;
        }
    }
}

/// Some sub-blocks, which all rows meet before any of them goes on.
struct Part<'a> {
    /// `[m][blocks]`
    x: &'a [Block],
    blocks: usize,
    first: usize,
    weights: &'a [Unpacked],
}

impl<'a> Part<'a> {
    /// While the sums of some tiles are added to their chains, those of the next are multiplied.
    #[inline(always)]
    fn run<F: Format, L: Products>(
        &self,
        l: L,
        tiles: &mut Tiles,
        mut ahead: Ahead,
        products: &mut [Products4; 2],
        sums: &mut [Sums],
    ) {
        let m = sums.len();
        let each = self.weights.len().div_ceil(TOGETHER / F::HALVES);
        let all = m.div_ceil(TILE_ROWS) * (PANEL / LANES) * each;
        let [mut these, mut others] = products.each_mut();
        let mut before = None;
        for i in 0..=all {
            let next = (i < all).then(|| {
                let row = i / (PANEL / LANES * each) * TILE_ROWS;
                let rows = row..m.min(row + TILE_ROWS);
                let (v, sub) = (i / each % (PANEL / LANES), i % each * (TOGETHER / F::HALVES));
                tiles.shape(Shape { rows: [rows.len(); 2], depth: 8 / F::HALVES });
                let run = self.some::<F>(&rows, v, sub);
                run.multiply::<F>(tiles, these);
                ahead.fetch(l, run.weights.len() * ahead.share(rows.len(), 1), TILE_ROWS);
                (run, rows)
            });
            if let Some((run, rows)) = std::mem::replace(&mut before, next) {
                run.add_all::<F, L>(l, others, &mut sums[rows]);
            }
            std::mem::swap(&mut these, &mut others);
        }
    }

    /// The sub-blocks from `sub` on that are multiplied together.
    #[inline(always)]
    fn some<F: Format>(&self, rows: &Range<usize>, v: usize, sub: usize) -> Run<'a> {
        let behind = self.weights.len().min(sub + TOGETHER / F::HALVES);
        Run {
            x: &self.x[rows.start * self.blocks + self.first + sub..],
            blocks: self.blocks,
            fresh: self.first + sub == 0,
            weights: &self.weights[sub..behind],
            v,
        }
    }
}

/// Some rows against some sub-blocks, sixteen columns from `v` on.
struct Run<'a> {
    /// Begins with the first row's first block; rows are `blocks` blocks apart.
    x: &'a [Block],
    blocks: usize,
    /// Whether chains begin here.
    fresh: bool,
    weights: &'a [Unpacked],
    v: usize,
}

impl Run<'_> {
    /// Sums of the products of all sub-blocks.
    #[inline(always)]
    fn multiply<F: Format>(&self, tiles: &mut Tiles, sums: &mut Products4) {
        const { assert!(offset_of!(Block, values) == 0 && offset_of!(Unpacked, values) == 0) }
        let depth = 8 / F::HALVES;
        let mut left = [self.x.as_ptr().cast::<u8>(); TOGETHER];
        let mut right = [self.weights.as_ptr().cast::<u8>(); TOGETHER];
        for i in 0..TOGETHER {
            // Behind the last sub-block it is taken again, for sums that nobody asks for.
            let sub = (i / F::HALVES).min(self.weights.len() - 1);
            let group = i % F::HALVES * depth;
            left[i] = left[i].wrapping_add(sub * size_of::<Block>() + 4 * group);
            let column = (group * PANEL + self.v * LANES) * 4;
            right[i] = right[i].wrapping_add(sub * size_of::<Unpacked>() + column);
        }
        let row = self.blocks * size_of::<Block>();
        // SAFETY: the shape has the rows of `x`, which are `blocks` blocks apart; each tile lies in
        // the values of its blocks, and in the groups of its sub-block.
        unsafe { tiles.bytes_four(left, row, right, sums.0.as_mut_ptr().cast()) }
    }

    #[inline(always)]
    fn add_all<F: Format, L: Products>(&self, l: L, products: &Products4, sums: &mut [Sums]) {
        match self.weights.len() {
            4 => self.add::<F, L, 4>(l, products, sums),
            3 => self.add::<F, L, 3>(l, products, sums),
            2 => self.add::<F, L, 2>(l, products, sums),
            _ => self.add::<F, L, 1>(l, products, sums),
        }
    }

    /// Adds the sums of `N` sub-blocks to the chains of all rows.
    #[inline(always)]
    fn add<F: Format, L: Products, const N: usize>(
        &self,
        l: L,
        products: &Products4,
        sums: &mut [Sums],
    ) {
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
        let products = &products.0[..N * F::HALVES * rows];
        for (row, chains) in sums.iter_mut().enumerate() {
            let x = &self.x[row * self.blocks..];
            let x: &[Block; N] = x.first_chunk().expect("rows have all blocks");
            let chain = &mut chains.0[v];
            let mut acc = if self.fresh { l.splat(0.0) } else { l.load(chain) };
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
