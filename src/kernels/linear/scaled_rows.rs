//! Panels of 8-bit weights with one scale for a row of the matrix, times rows of signed bytes with one scale each
//! (W8A8).
//!
//! Inside a part of 256 elements products are summed as integers, exactly. A lane then adds
//! `scale * row_scale * sum` to its chain, part after part in ascending K.
//!
//! Quantization by channel and by token: Dettmers et al., "LLM.int8()", 2022.

#![allow(
    clippy::needless_range_loop,
    clippy::many_single_char_names,
    reason = "tiles are small arrays that live in registers, and are indexed as in the formula"
)]

use super::activations::{PART_BLOCKS, ScaledBlock};
use super::ahead::Ahead;
use super::job::Sums;
use crate::cpu::{Kernel, LANES, Products};
use crate::packed::formats::{Eight, Format, PANEL, Q8_0, Values};

/// Bytes of a part: with the next one, about what stays in the first-level cache.
const PART: usize = PART_BLOCKS * Q8_0::CELL;

/// One panel times all rows of `x [m][blocks]`, to `sums`.
pub(super) struct ScaledPanel<'a> {
    /// All blocks of a row have one scale.
    pub(super) x: &'a [ScaledBlock],
    /// Blocks of a row.
    pub(super) blocks: usize,
    /// Cells of Q8_0 whose columns have one scale in all of them.
    pub(super) panel: &'a [u8],
    /// What this thread will read next, most likely.
    pub(super) next: &'a [u8],
    pub(super) sums: &'a mut [Sums],
}

impl Kernel for ScaledPanel<'_> {
    #[inline(always)]
    fn run<L: Products>(mut self, l: L) {
        assert_eq!(self.x.len(), self.sums.len() * self.blocks);
        for first in (0..self.blocks).step_by(PART_BLOCKS) {
            let (cells, ahead) = self.cells(first);
            self.part(l, first, cells, ahead);
        }
    }
}

impl<'a> ScaledPanel<'a> {
    /// The part of the panel from cell `first` on, and what is fetched meanwhile.
    #[inline(always)]
    pub(super) fn cells(&self, first: usize) -> (&'a [u8], Ahead) {
        let rest = &self.panel[first * Q8_0::CELL..];
        let (cells, behind) = rest.split_at(PART.min(rest.len()));
        let next = if behind.is_empty() { self.next } else { behind };
        // The last part may have fewer cells than what it fetches.
        let step = PART.min(next.len()).div_ceil(cells.len() / Q8_0::CELL);
        (cells, Ahead::of_part(next, PART, self.sums.len(), step))
    }

    /// All rows against some cells of the panel.
    #[inline(always)]
    fn part<L: Products>(&mut self, l: L, first: usize, cells: &[u8], mut ahead: Ahead) {
        let m = self.sums.len();
        let mut row = 0;
        while row < m {
            let left = m - row;
            row += if L::WIDE {
                match left {
                    6.. => self.tile::<L, 6, 4>(l, row, first, cells, &mut ahead),
                    5 => self.tile::<L, 5, 4>(l, row, first, cells, &mut ahead),
                    4 => self.tile::<L, 4, 4>(l, row, first, cells, &mut ahead),
                    3 => self.tile::<L, 3, 4>(l, row, first, cells, &mut ahead),
                    2 => self.tile::<L, 2, 4>(l, row, first, cells, &mut ahead),
                    _ => self.tile::<L, 1, 4>(l, row, first, cells, &mut ahead),
                }
            } else {
                match left {
                    6.. if L::DOTS => self.tile::<L, 6, 1>(l, row, first, cells, &mut ahead),
                    4.. => self.tile::<L, 4, 1>(l, row, first, cells, &mut ahead),
                    2.. => self.tile::<L, 2, 1>(l, row, first, cells, &mut ahead),
                    _ => self.tile::<L, 1, 2>(l, row, first, cells, &mut ahead),
                }
            };
        }
    }

    /// `M` rows against all 64 columns, `V` vectors of them at a time. Returns `M`.
    #[inline(always)]
    fn tile<L: Products, const M: usize, const V: usize>(
        &mut self,
        l: L,
        row: usize,
        first: usize,
        cells: &[u8],
        ahead: &mut Ahead,
    ) -> usize {
        let blocks = cells.len() / Q8_0::CELL;
        let mut x: [&[ScaledBlock]; M] = [&[]; M];
        // What the products have too much, for values are stored unsigned.
        let mut offsets = [0; M];
        for i in 0..M {
            x[i] = &self.x[(row + i) * self.blocks + first..][..blocks];
            offsets[i] = (Q8_0::OFFSET - L::WIDE_OFFSET) * x[i][0].sum;
        }
        let lines = ahead.share(M, V);
        for v in (0..PANEL / LANES).step_by(V) {
            let mut sums = [[l.splat_int(0); V]; M];
            for i in 0..M {
                sums[i] = [l.splat_int(-offsets[i]); V];
            }
            for (sub, cell) in cells.chunks_exact(Q8_0::CELL).enumerate() {
                ahead.fetch(l, lines, M);
                let mut block = [&x[0][sub]; M];
                for i in 1..M {
                    block[i] = &x[i][sub];
                }
                sums = add_products::<L, M, V>(l, &cell[Q8_0::SCALES..], block, v, sums);
            }
            let mut scales = [l.splat(0.0); V];
            for j in 0..V {
                scales[j] = Q8_0::scale(l, &[], cells, 0, v + j);
            }
            let chains: &mut [Sums; M] = self.sums[row..].first_chunk_mut().expect("M rows");
            let add = Add { l, scales, v, fresh: first == 0 };
            // One by one, so that each knows its row while it is compiled: else all sums go through memory.
            add.to::<M, 0>(&sums, &x, chains);
            add.to::<M, 1>(&sums, &x, chains);
            add.to::<M, 2>(&sums, &x, chains);
            add.to::<M, 3>(&sums, &x, chains);
            add.to::<M, 4>(&sums, &x, chains);
            add.to::<M, 5>(&sums, &x, chains);
        }
        M
    }
}

/// What is done with sums of products.
struct Add<L: Products, const V: usize> {
    l: L,
    scales: [L::V; V],
    /// The first vector of columns.
    v: usize,
    /// Whether chains begin here.
    fresh: bool,
}

impl<L: Products, const V: usize> Add<L, V> {
    /// Adds the sums of row `I`, if there is one, to its chains.
    #[inline(always)]
    fn to<const M: usize, const I: usize>(
        &self,
        sums: &[[L::Ints; V]; M],
        x: &[&[ScaledBlock]; M],
        chains: &mut [Sums; M],
    ) {
        if I >= M {
            return;
        }
        let l = self.l;
        for j in 0..V {
            let sum = l.ints_to_f32(sums[I][j]);
            let chain = &mut chains[I].0[self.v + j];
            add_scaled(l, sum, [self.scales[j], l.splat(x[I][0].scale)], self.fresh, chain);
        }
    }
}

/// Adds the sum of a part, times the scales of its columns and of its row, to a chain or to the zero that it begins
/// with.
#[inline(always)]
pub(super) fn add_scaled<L: Products>(
    l: L,
    sum: L::V,
    scales: [L::V; 2],
    fresh: bool,
    chain: &mut [f32; LANES],
) {
    let before = if fresh { l.splat(0.0) } else { l.load(chain) };
    l.store(l.mul_add(sum, l.mul(scales[0], scales[1]), before), chain);
}

/// `sums` and the products of a cell's values with a block of each of `M` rows, `V` vectors of columns from `v` on.
#[inline(always)]
fn add_products<L: Products, const M: usize, const V: usize>(
    l: L,
    values: &[u8],
    x: [&ScaledBlock; M],
    v: usize,
    mut sums: [[L::Ints; V]; M],
) -> [[L::Ints; V]; M] {
    for group in 0..8 {
        if M > 1 {
            l.barrier();
        }
        let mut w = [Eight::load(l, values, group, v); V];
        for j in 1..V {
            w[j] = Eight::load(l, values, group, v + j);
        }
        for i in 0..M {
            let x = l.splat_bytes(x[i].values[group]);
            for j in 0..V {
                sums[i][j] = l.dot_wide(sums[i][j], w[j], x);
            }
        }
    }
    sums
}
