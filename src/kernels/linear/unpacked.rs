//! Sub-blocks that are taken apart once for many rows: values as whole bytes, scales as f32.
//!
//! The sums and the chains of additions are those of `blocks`, to the bit: bytes are summed
//! exactly, and scales are the same numbers.

#![allow(
    clippy::needless_range_loop,
    clippy::many_single_char_names,
    reason = "tiles are small arrays that live in registers, and are indexed as in the formula"
)]

use super::activations::{Block, GROUPS};
use super::ahead::Ahead;
use super::job::Sums;
use crate::cpu::{LANES, Products};
use crate::packed::formats::{Format, PANEL, Values, pair_groups};

/// Sub-blocks of a part that is taken apart: what stays in the first-level cache.
pub(super) const UNPACKED: usize = 8;

/// One sub-block of 64 columns.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Unpacked {
    /// `[group][16 columns][4]`, as [`Values::load`] gives them.
    pub(super) values: [[[u8; 4 * LANES]; PANEL / LANES]; GROUPS],
    /// One for each half that has a scale of its own.
    pub(super) scales: [[f32; PANEL]; 2],
    pub(super) mins: [f32; PANEL],
}

impl Unpacked {
    pub(super) const ZERO: Self = Self {
        values: [[[0; 4 * LANES]; PANEL / LANES]; GROUPS],
        scales: [[0.0; PANEL]; 2],
        mins: [0.0; PANEL],
    };

    /// The sub-block `sub` of a cell that begins with `head`.
    #[inline(always)]
    fn fill<F: Format, L: Products, const SIGNED: bool>(&mut self, l: L, head: &[u8], sub: &[u8]) {
        let values = &sub[F::SCALES..][..F::Values::BYTES];
        // One by one, so that each knows its group while it is compiled.
        self.pair::<F, L, SIGNED>(l, values, 0);
        self.pair::<F, L, SIGNED>(l, values, 1);
        self.pair::<F, L, SIGNED>(l, values, 2);
        self.pair::<F, L, SIGNED>(l, values, 3);
        for v in 0..PANEL / LANES {
            for half in 0..F::HALVES {
                let scale = F::scale(l, head, sub, half, v);
                l.store(scale, &mut self.scales[half].as_chunks_mut().0[v]);
            }
            if F::MINS {
                l.store(F::min(l, head, sub, v), &mut self.mins.as_chunks_mut().0[v]);
            }
        }
    }

    #[inline(always)]
    fn pair<F: Format, L: Products, const SIGNED: bool>(
        &mut self,
        l: L,
        values: &[u8],
        pair: usize,
    ) {
        let [first, second] = pair_groups::<F::Values>(pair);
        for v in 0..PANEL / LANES {
            let mut bytes = F::Values::load_pair(l, values, pair, v);
            if SIGNED && let Ok(offset @ 1..) = u8::try_from(F::OFFSET) {
                bytes = bytes.map(|bytes| l.less(bytes, offset));
            }
            self.values[first][v] = l.bytes_to_array(bytes[0]);
            self.values[second][v] = l.bytes_to_array(bytes[1]);
        }
    }
}

/// Takes all cells of a part apart, and gives their sub-blocks in ascending K: values with the kind's offset, or, where
/// they are to be signed, without it.
#[inline(always)]
pub(super) fn unpack<'a, F: Format, L: Products, const SIGNED: bool>(
    l: L,
    cells: &[u8],
    room: &'a mut [Unpacked; UNPACKED],
) -> &'a [Unpacked] {
    let count = cells.len() / F::CELL * F::SUBS;
    let weights = &mut room[..count];
    for (cell, weights) in cells.chunks_exact(F::CELL).zip(weights.chunks_exact_mut(F::SUBS)) {
        let (head, subs) = cell.split_at(F::HEAD);
        for (sub, weights) in subs.chunks_exact(F::SUB).zip(weights) {
            weights.fill::<F, L, SIGNED>(l, head, sub);
        }
    }
    weights
}

/// Some sub-blocks, which all rows meet before any of them goes on.
pub(super) struct UnpackedPart<'a> {
    /// `[m][blocks]`
    pub(super) x: &'a [Block],
    pub(super) blocks: usize,
    /// Sub-blocks before this part.
    pub(super) first: usize,
    pub(super) weights: &'a [Unpacked],
    pub(super) ahead: Ahead,
}

/// The chains of a tile's rows and vectors of columns.
trait Chains<L: Products> {
    /// The sum before the first or the second half of the sub-block.
    fn sum(&self, l: L, row: usize, vector: usize, half: usize) -> L::V;

    fn set(&mut self, l: L, row: usize, vector: usize, sum: L::V);
}

/// In registers, for all sub-blocks of a part.
impl<L: Products, const M: usize, const V: usize> Chains<L> for [[L::V; V]; M] {
    #[inline(always)]
    fn sum(&self, _: L, row: usize, vector: usize, _: usize) -> L::V {
        self[row][vector]
    }

    #[inline(always)]
    fn set(&mut self, _: L, row: usize, vector: usize, sum: L::V) {
        self[row][vector] = sum;
    }
}

/// In memory, so that a tile has more rows.
struct InMemory<'a> {
    sums: &'a mut [Sums],
    /// The tile's first vector of columns.
    v: usize,
    /// Whether chains begin with this sub-block.
    fresh: bool,
}

impl<L: Products> Chains<L> for InMemory<'_> {
    #[inline(always)]
    fn sum(&self, l: L, row: usize, vector: usize, half: usize) -> L::V {
        if self.fresh && half == 0 {
            l.splat(0.0)
        } else {
            l.load(&self.sums[row].0[self.v + vector])
        }
    }

    #[inline(always)]
    fn set(&mut self, l: L, row: usize, vector: usize, sum: L::V) {
        l.store(sum, &mut self.sums[row].0[self.v + vector]);
    }
}

/// Whether chains are kept in registers. Where one instruction makes the products of a group, a store for each
/// sub-block costs more than larger tiles save; else products of wide values and of halves need the registers.
const fn keeps_chains<F: Format, L: Products>() -> bool {
    L::DOTS || (L::WIDE && !F::Values::WIDE && F::HALVES == 1)
}

impl UnpackedPart<'_> {
    #[inline(always)]
    pub(super) fn run<F: Format, L: Products>(mut self, l: L, sums: &mut [Sums]) {
        let mut row = 0;
        while row < sums.len() {
            let left = sums.len() - row;
            row += if L::WIDE {
                match left {
                    5.. if keeps_chains::<F, L>() => self.tile::<F, L, 5, 2>(l, row, sums),
                    6.. => self.tile::<F, L, 6, 4>(l, row, sums),
                    4 if keeps_chains::<F, L>() => self.tile::<F, L, 4, 2>(l, row, sums),
                    3.. => self.tile::<F, L, 3, 4>(l, row, sums),
                    2 => self.tile::<F, L, 2, 4>(l, row, sums),
                    _ => self.tile::<F, L, 1, 4>(l, row, sums),
                }
            } else {
                match left {
                    6.. if L::DOTS => self.tile::<F, L, 6, 1>(l, row, sums),
                    4.. => self.tile::<F, L, 4, 1>(l, row, sums),
                    2.. => self.tile::<F, L, 2, 1>(l, row, sums),
                    _ => self.tile::<F, L, 1, 1>(l, row, sums),
                }
            };
        }
    }

    /// `M` rows against all 64 columns, `V` vectors of them at a time. Returns `M`.
    #[inline(always)]
    fn tile<F: Format, L: Products, const M: usize, const V: usize>(
        &mut self,
        l: L,
        row: usize,
        sums: &mut [Sums],
    ) -> usize {
        let mut x: [&[Block]; M] = [&[]; M];
        for (i, x) in x.iter_mut().enumerate() {
            *x = &self.x[(row + i) * self.blocks + self.first..][..self.weights.len()];
        }
        let sums = &mut sums[row..row + M];
        let lines = self.ahead.share(M, V);
        for v in (0..PANEL / LANES).step_by(V) {
            let mut kept = [[l.splat(0.0); V]; M];
            if keeps_chains::<F, L>() && self.first > 0 {
                for i in 0..M {
                    for j in 0..V {
                        kept[i][j] = l.load(&sums[i].0[v + j]);
                    }
                }
            }
            for (sub, weights) in self.weights.iter().enumerate() {
                self.ahead.fetch(l, lines, M);
                let mut block = [&x[0][sub]; M];
                for i in 1..M {
                    block[i] = &x[i][sub];
                }
                if keeps_chains::<F, L>() {
                    add_sub_block::<F, L, M, V>(l, weights, block, v, &mut kept);
                } else {
                    let fresh = self.first + sub == 0;
                    let mut chains = InMemory { sums: &mut *sums, v, fresh };
                    add_sub_block::<F, L, M, V>(l, weights, block, v, &mut chains);
                }
            }
            if keeps_chains::<F, L>() {
                for i in 0..M {
                    for j in 0..V {
                        l.store(kept[i][j], &mut sums[i].0[v + j]);
                    }
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
    weights: &Unpacked,
    x: [&Block; M],
    v: usize,
    chains: &mut impl Chains<L>,
) {
    for half in 0..F::HALVES {
        let sums = integer_sums::<F, L, M, V>(l, weights, x, v, half);
        for j in 0..V {
            let scale = l.load(&weights.scales[half].as_chunks().0[v + j]);
            let min = l.load(&weights.mins.as_chunks().0[v + j]);
            for i in 0..M {
                let row_scale = l.splat(x[i].scale);
                let sum = l.ints_to_f32(sums[i][j]);
                let before = chains.sum(l, i, j, half);
                let after = if F::MINS {
                    let row_sum = l.splat(x[i].sum);
                    let both = l.mul_add(scale, sum, l.mul(min, row_sum));
                    l.mul_add(both, row_scale, before)
                } else {
                    l.mul_add(sum, l.mul(scale, row_scale), before)
                };
                chains.set(l, i, j, after);
            }
        }
    }
}

/// Sums of the products of a sub-block, or of half of it where each half has a scale.
#[inline(always)]
fn integer_sums<F: Format, L: Products, const M: usize, const V: usize>(
    l: L,
    weights: &Unpacked,
    x: [&Block; M],
    v: usize,
    half: usize,
) -> [[L::Ints; V]; M] {
    let offset = if F::Values::WIDE { F::OFFSET - L::WIDE_OFFSET } else { F::OFFSET };
    let mut sums = [[l.splat_int(0); V]; M];
    for i in 0..M {
        let sum = if F::HALVES == 2 { x[i].sums[half] } else { x[i].sums[0] + x[i].sums[1] };
        sums[i] = [l.splat_int(-offset * sum); V];
    }
    let groups = GROUPS / F::HALVES;
    for group in (half * groups..(half + 1) * groups).step_by(4) {
        // One by one or together, as sums of pairs fit sixteen bits.
        match F::Values::TOGETHER {
            4 if !L::DOTS => add_groups::<F, L, M, V, 4>(l, weights, x, v, group, &mut sums),
            2 if !L::DOTS => {
                add_groups::<F, L, M, V, 2>(l, weights, x, v, group, &mut sums);
                add_groups::<F, L, M, V, 2>(l, weights, x, v, group + 2, &mut sums);
            }
            _ => {
                for group in group..group + 4 {
                    add_groups::<F, L, M, V, 1>(l, weights, x, v, group, &mut sums);
                }
            }
        }
    }
    sums
}

/// Adds the products of `N` groups.
#[inline(always)]
fn add_groups<F: Format, L: Products, const M: usize, const V: usize, const N: usize>(
    l: L,
    weights: &Unpacked,
    x: [&Block; M],
    v: usize,
    first: usize,
    sums: &mut [[L::Ints; V]; M],
) {
    l.barrier();
    let mut w = [[l.splat_bytes([0; 4]); N]; V];
    for j in 0..V {
        for n in 0..N {
            w[j][n] = l.load_bytes(&weights.values[first + n][v + j]);
        }
    }
    for i in 0..M {
        let mut groups = [l.splat_bytes(x[i].values[first]); N];
        for n in 1..N {
            groups[n] = l.splat_bytes(x[i].values[first + n]);
        }
        for j in 0..V {
            sums[i][j] = if F::Values::WIDE {
                l.dot_wide(sums[i][j], w[j][0], groups[0])
            } else {
                l.dot_together(sums[i][j], w[j], groups)
            };
        }
    }
}
