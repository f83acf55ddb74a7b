//! Panels of quantized weights times rows of signed bytes.
//!
//! Inside a sub-block of 32 elements products are summed as integers, exactly. A lane then adds
//! `scale * row_scale * sum` (and its minimum times the sum of the row's values) to its chain,
//! sub-block after sub-block in ascending K.

#![allow(
    clippy::needless_range_loop,
    clippy::many_single_char_names,
    reason = "tiles are small arrays that live in registers, and are indexed as in the formula"
)]

use std::marker::PhantomData;

use super::activations::Block;
use super::ahead::{Ahead, PART};
use super::job::Sums;
use super::unpacked::{UNPACKED, Unpacked, UnpackedPart, unpack};
use crate::cpu::{Kernel, LANES, Products};
use crate::packed::formats::{Format, PANEL, Values, pair_groups};

/// One panel times all rows of `x [m][blocks]`, to `sums`.
pub(super) struct BlockPanel<'a, F> {
    pub(super) x: &'a [Block],
    /// Sub-blocks of a row.
    pub(super) blocks: usize,
    pub(super) panel: &'a [u8],
    /// What this thread will read next, most likely.
    pub(super) next: &'a [u8],
    pub(super) sums: &'a mut [Sums],
    pub(super) format: PhantomData<F>,
}

impl<F: Format> Kernel for BlockPanel<'_, F> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        assert_eq!(self.x.len(), self.sums.len() * self.blocks);
        if self.sums.len() >= unpack_from::<F, L>() {
            self.run_unpacked(l);
        } else {
            self.run_stored(l);
        }
    }
}

/// Rows from which on sub-blocks are taken apart once, and not by each tile: many where values are
/// whole bytes already, unless they are widened for their products, and where tiles are so large that few of them
/// share the work.
const fn unpack_from<F: Format, L: Products>() -> usize {
    match (F::Values::WIDE, L::WIDE) {
        (true, true) if L::DOTS => 32,
        (true, _) => 12,
        (false, true) => 8,
        (false, false) => 4,
    }
}

impl<F: Format> BlockPanel<'_, F> {
    /// Each tile takes the sub-blocks apart for itself.
    #[inline(always)]
    fn run_stored<L: Products>(mut self, l: L) {
        let part = (PART / F::CELL).max(1) * F::CELL;
        let (mut first, mut rest) = (0, self.panel);
        while !rest.is_empty() {
            let (cells, behind) = rest.split_at(part.min(rest.len()));
            let next = if behind.is_empty() { self.next } else { behind };
            let ahead = Ahead::of(next, self.sums.len(), F::SUB);
            self.part(l, first, cells, ahead);
            first += cells.len() / F::CELL * F::SUBS;
            rest = behind;
        }
    }

    /// Sub-blocks are taken apart before the rows meet them.
    #[inline(always)]
    fn run_unpacked<L: Products>(self, l: L) {
        #[expect(clippy::large_stack_arrays, reason = "half of the first-level cache")]
        let mut room = [Unpacked::ZERO; UNPACKED];
        let (mut first, mut rest) = (0, self.panel);
        while !rest.is_empty() {
            let (cells, behind) = rest.split_at((UNPACKED / F::SUBS * F::CELL).min(rest.len()));
            let weights = unpack::<F, L, false>(l, cells, &mut room);
            let next = if behind.is_empty() { self.next } else { behind };
            let ahead = Ahead::of(next, self.sums.len(), F::SUB);
            let (x, blocks) = (self.x, self.blocks);
            UnpackedPart { x, blocks, first, weights, ahead }.run::<F, L>(l, self.sums);
            first += weights.len();
            rest = behind;
        }
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
                    // Half of the columns at a time: what is stored is taken apart for all rows at once.
                    6 if !F::Values::WIDE => self.tile::<L, 6, 2>(l, row, first, cells, &mut ahead),
                    5 if !F::Values::WIDE => self.tile::<L, 5, 2>(l, row, first, cells, &mut ahead),
                    4 if !F::Values::WIDE => self.tile::<L, 4, 2>(l, row, first, cells, &mut ahead),
                    3.. => self.tile::<L, 3, 4>(l, row, first, cells, &mut ahead),
                    2 => self.tile::<L, 2, 4>(l, row, first, cells, &mut ahead),
                    _ => self.tile::<L, 1, 4>(l, row, first, cells, &mut ahead),
                }
            } else {
                match left {
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
        let blocks = cells.len() / F::CELL * F::SUBS;
        let mut x: [&[Block]; M] = [&[]; M];
        for (i, x) in x.iter_mut().enumerate() {
            *x = &self.x[(row + i) * self.blocks + first..][..blocks];
        }
        let lines = ahead.share(M, V);
        for v in (0..PANEL / LANES).step_by(V) {
            let mut acc = [[l.splat(0.0); V]; M];
            if first > 0 {
                for i in 0..M {
                    for j in 0..V {
                        acc[i][j] = l.load(&self.sums[row + i].0[v + j]);
                    }
                }
            }
            for (cell, bytes) in cells.chunks_exact(F::CELL).enumerate() {
                let (head, subs) = bytes.split_at(F::HEAD);
                for (sub, bytes) in subs.chunks_exact(F::SUB).enumerate() {
                    ahead.fetch(l, lines, M);
                    let mut block = [&x[0][cell * F::SUBS + sub]; M];
                    for i in 1..M {
                        block[i] = &x[i][cell * F::SUBS + sub];
                    }
                    add_sub_block::<F, L, M, V>(l, head, bytes, block, v, &mut acc);
                }
            }
            for i in 0..M {
                for j in 0..V {
                    l.store(acc[i][j], &mut self.sums[row + i].0[v + j]);
                }
            }
        }
        M
    }
}

/// Adds one sub-block's products to the chains of `M` rows and `V` vectors of columns from `v` on.
#[inline(always)]
fn add_sub_block<F: Format, L: Products, const M: usize, const V: usize>(
    l: L,
    head: &[u8],
    sub: &[u8],
    x: [&Block; M],
    v: usize,
    acc: &mut [[L::V; V]; M],
) {
    let values = &sub[F::SCALES..][..F::Values::BYTES];
    let offset = if F::Values::WIDE { F::OFFSET - L::WIDE_OFFSET } else { F::OFFSET };
    for half in 0..F::HALVES {
        let mut sums = [[l.splat_int(0); V]; M];
        for i in 0..M {
            let sum = if F::HALVES == 2 { x[i].sums[half] } else { x[i].sums[0] + x[i].sums[1] };
            sums[i] = [l.splat_int(-offset * sum); V];
        }
        // One by one, so that each knows its group while it is compiled.
        add_pair::<F, L, M, V>(l, values, x, v, half, 0, &mut sums);
        add_pair::<F, L, M, V>(l, values, x, v, half, 1, &mut sums);
        add_pair::<F, L, M, V>(l, values, x, v, half, 2, &mut sums);
        add_pair::<F, L, M, V>(l, values, x, v, half, 3, &mut sums);
        for j in 0..V {
            let scale = F::scale(l, head, sub, half, v + j);
            let min = F::min(l, head, sub, v + j);
            for i in 0..M {
                let row_scale = l.splat(x[i].scale);
                let sum = l.ints_to_f32(sums[i][j]);
                acc[i][j] = if F::MINS {
                    let row_sum = l.splat(x[i].sum);
                    let both = l.mul_add(scale, sum, l.mul(min, row_sum));
                    l.mul_add(both, row_scale, acc[i][j])
                } else {
                    l.mul_add(sum, l.mul(scale, row_scale), acc[i][j])
                };
            }
        }
    }
}

/// Adds the products of two groups that are loaded together: of one of them, or of none, where each half has sums
/// of its own.
#[inline(always)]
fn add_pair<F: Format, L: Products, const M: usize, const V: usize>(
    l: L,
    values: &[u8],
    x: [&Block; M],
    v: usize,
    half: usize,
    pair: usize,
    sums: &mut [[L::Ints; V]; M],
) {
    let groups = pair_groups::<F::Values>(pair);
    let asked = [0, 1].map(|part| F::HALVES == 1 || groups[part] / 4 == half);
    if !asked[0] && !asked[1] {
        return;
    }
    if M > 1 {
        l.barrier();
    }
    let mut w = [F::Values::load_pair(l, values, pair, v); V];
    for j in 1..V {
        w[j] = F::Values::load_pair(l, values, pair, v + j);
    }
    for i in 0..M {
        let x = [l.splat_bytes(x[i].values[groups[0]]), l.splat_bytes(x[i].values[groups[1]])];
        for j in 0..V {
            if asked[0] && asked[1] && !F::Values::WIDE && F::Values::TOGETHER > 1 {
                sums[i][j] = l.dot_together(sums[i][j], w[j], x);
                continue;
            }
            for part in 0..2 {
                if !asked[part] {
                    continue;
                }
                sums[i][j] = if F::Values::WIDE {
                    l.dot_wide(sums[i][j], w[j][part], x[part])
                } else {
                    l.dot_small(sums[i][j], w[j][part], x[part])
                };
            }
        }
    }
}
