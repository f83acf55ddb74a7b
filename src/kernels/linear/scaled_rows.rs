//! Panels of 8-bit weights with one scale for a row of the matrix, times rows of signed bytes with one scale each
//! (W8A8).
//!
//! Products are summed as integers, exactly, over all of K, and the sum is then multiplied by `scale * row_scale`:
//! its bits don't depend on the order of additions. Sums of up to 2^17 products fit in 32 bits, though what they have
//! too much meanwhile, for values are stored unsigned, may not: additions are those modulo 2^32.
//!
//! Quantization by channel and by token: Dettmers et al., "LLM.int8()", 2022.

#![allow(
    clippy::needless_range_loop,
    clippy::many_single_char_names,
    reason = "tiles are small arrays that live in registers, and are indexed as in the formula"
)]

use super::activations::{GROUPS, ScaledBlock};
use super::ahead::Ahead;
use super::job::Sums;
use crate::cpu::{Kernel, LANES, Products};
use crate::packed::formats::{Eight, Format, PANEL, Q8_0, Values};

/// Cells of a part: with the next one, about what stays in the first-level cache.
const PART_CELLS: usize = 8;
const PART: usize = PART_CELLS * Q8_0::CELL;

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
        for first in (0..self.blocks).step_by(PART_CELLS) {
            let rest = &self.panel[first * Q8_0::CELL..];
            let (cells, behind) = rest.split_at(PART.min(rest.len()));
            let next = if behind.is_empty() { self.next } else { behind };
            // The last part may have fewer cells than what it fetches.
            let step = PART.min(next.len()).div_ceil(cells.len() / Q8_0::CELL);
            let ahead = Ahead::of_part(next, PART, self.sums.len(), step);
            self.part(l, first, cells, ahead);
        }
    }
}

impl ScaledPanel<'_> {
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
        for i in 0..M {
            x[i] = &self.x[(row + i) * self.blocks + first..][..blocks];
        }
        let kept: &mut [Sums; M] = self.sums[row..].first_chunk_mut().expect("M rows");
        let lines = ahead.share(M, V);
        for v in (0..PANEL / LANES).step_by(V) {
            let mut sums = [[l.splat_int(0); V]; M];
            for i in 0..M {
                for j in 0..V {
                    sums[i][j] = if first > 0 {
                        l.ints_of_bits(&kept[i].0[v + j])
                    } else {
                        // What the products will have too much, for values are stored unsigned.
                        let each = Q8_0::OFFSET - L::WIDE_OFFSET;
                        l.splat_int(each.wrapping_mul(x[i][0].row.sum).wrapping_neg())
                    };
                }
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
            let keep = Keep { l, scales, v, last: first + blocks == self.blocks };
            // One by one, so that each knows its row while it is compiled: else all sums go through memory.
            keep.row::<M, 0>(&sums, &x, kept);
            keep.row::<M, 1>(&sums, &x, kept);
            keep.row::<M, 2>(&sums, &x, kept);
            keep.row::<M, 3>(&sums, &x, kept);
            keep.row::<M, 4>(&sums, &x, kept);
            keep.row::<M, 5>(&sums, &x, kept);
        }
        M
    }
}

/// What is done with sums of products.
struct Keep<L: Products, const V: usize> {
    l: L,
    /// Of the columns.
    scales: [L::V; V],
    /// The first vector of columns.
    v: usize,
    /// Whether K ends here.
    last: bool,
}

impl<L: Products, const V: usize> Keep<L, V> {
    /// Keeps the sums of row `I`, if there is one, for the next part, or what the last one makes of them.
    #[inline(always)]
    fn row<const M: usize, const I: usize>(
        &self,
        sums: &[[L::Ints; V]; M],
        x: &[&[ScaledBlock]; M],
        kept: &mut [Sums; M],
    ) {
        if I >= M {
            return;
        }
        let l = self.l;
        for j in 0..V {
            let kept = &mut kept[I].0[self.v + j];
            if self.last {
                l.store(scaled(l, sums[I][j], [self.scales[j], l.splat(x[I][0].row.scale)]), kept);
            } else {
                *kept = l.bits_of_ints(sums[I][j]);
            }
        }
    }
}

/// Sums of products times the scales of their columns and of their row.
#[inline(always)]
pub(super) fn scaled<L: Products>(l: L, sums: L::Ints, scales: [L::V; 2]) -> L::V {
    l.mul(l.ints_to_f32(sums), l.mul(scales[0], scales[1]))
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
    for group in 0..GROUPS {
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
