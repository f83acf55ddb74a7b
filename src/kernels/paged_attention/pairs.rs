//! The two products of attention over a cache of bf16, where a level multiplies bf16 in pairs.
//!
//! Queries and softmax weights are rounded to bf16, sums are in f32, as in the kernels of GPUs (Dao et al.,
//! "FlashAttention", 2022). A score is summed along the head two elements at a time, a value over two
//! positions at a time, each in ascending order. A position that a row doesn't see has the weight 0 beside
//! its neighbour, and no part in what is read: so a row's bits are those it has alone.

#![expect(clippy::needless_range_loop, reason = "indices name registers")]

use std::ops::Range;

use half::bf16;

use super::registers::{HALVES, with_rows};
use crate::cache::KV_BLOCK;
use crate::cache::kv_element::Vector;
use crate::cpu::{Kernel, LANES, Lanes, Products};

/// Columns that are interleaved at once.
pub(super) const STRIPE: usize = 2 * LANES;

/// A pair of bf16 for each column of a stripe.
pub(super) type Stripe = [[[bf16; 2]; LANES]; 2];

/// Elements of a cache line.
const LINE: usize = 32;
const ZEROS: [bf16; STRIPE] = [bf16::ZERO; STRIPE];

/// Rows of bf16 that are read two by two.
pub(super) trait PairedRows: Copy {
    /// Rows `2 * pair` and `2 * pair + 1` in the columns of a stripe.
    fn stripe<L: Products>(self, l: L, pair: usize, stripe: usize) -> [L::Pairs; 2];
}

/// Rows of `width` elements as they lie in the cache; those outside of `rows` are zeros.
#[derive(Clone, Copy)]
pub(super) struct StoredRows<'a> {
    pub(super) elements: &'a [bf16],
    pub(super) width: usize,
    pub(super) rows: &'a Range<usize>,
}

impl PairedRows for StoredRows<'_> {
    #[inline(always)]
    fn stripe<L: Products>(self, l: L, pair: usize, stripe: usize) -> [L::Pairs; 2] {
        let both = l.interleave(self.row(2 * pair, stripe), self.row(2 * pair + 1, stripe));
        [l.load_pairs(&both[0]), l.load_pairs(&both[1])]
    }
}

impl StoredRows<'_> {
    #[inline(always)]
    fn row(&self, row: usize, stripe: usize) -> &[bf16; STRIPE] {
        if row < self.rows.start || row >= self.rows.end {
            return &ZEROS;
        }
        let start = row * self.width + stripe * STRIPE;
        self.elements[start..].first_chunk().unwrap_or(&ZEROS)
    }
}

/// Rows that [`Pack`] has interleaved, for tiles of many rows: `[pairs of rows][stripes]`.
#[derive(Clone, Copy)]
pub(super) struct PackedRows<'a> {
    pub(super) pairs: &'a [Stripe],
    pub(super) stripes: usize,
}

impl PairedRows for PackedRows<'_> {
    #[inline(always)]
    fn stripe<L: Products>(self, l: L, pair: usize, stripe: usize) -> [L::Pairs; 2] {
        let both = &self.pairs[pair * self.stripes + stripe];
        [l.load_pairs(&both[0]), l.load_pairs(&both[1])]
    }
}

/// What is prefetched bit by bit while something else is computed.
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead<'a> {
    next: &'a [bf16],
    /// Cache lines in each turn.
    lines: usize,
}

impl<'a> Ahead<'a> {
    /// All of `next` in so many turns.
    #[inline(always)]
    pub(super) fn new(next: &'a [bf16], turns: usize) -> Self {
        Self { next, lines: next.len().div_ceil(LINE).div_ceil(turns.max(1)) }
    }

    #[inline(always)]
    fn bring<L: Lanes>(&self, l: L, turn: usize) {
        for line in turn * self.lines..(turn + 1) * self.lines {
            l.prefetch(self.next.as_ptr().wrapping_add(line * LINE));
        }
    }
}

/// Interleaves rows of `width` elements, two by two.
pub(super) struct Pack<'a> {
    pub(super) elements: &'a [bf16],
    pub(super) width: usize,
    /// `[pairs of rows][stripes]`
    pub(super) to: &'a mut [Stripe],
}

impl Kernel for Pack<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { elements, width, to } = self;
        let rows = elements.chunks_exact(2 * width);
        for (rows, to) in rows.zip(to.chunks_exact_mut(width / STRIPE)) {
            let (rows, _) = rows.as_chunks::<STRIPE>();
            let (first, second) = rows.split_at(width / STRIPE);
            for (to, (first, second)) in to.iter_mut().zip(first.iter().zip(second)) {
                *to = l.interleave(first, second);
            }
        }
    }
}

/// Scores of `rows` rows against a block's keys. Those of one row go to `out`, those of the next one to
/// `out[stride..]`.
pub(super) struct PairedScores<'a, P> {
    /// `[rows][head_dim]`
    pub(super) q: &'a [bf16],
    pub(super) head_dim: usize,
    pub(super) rows: usize,
    pub(super) keys: P,
    /// Brought near in as many turns as there are pairs of elements.
    pub(super) ahead: [Ahead<'a>; 2],
    pub(super) out: &'a mut [Vector],
    pub(super) stride: usize,
}

impl<P: PairedRows> Kernel for PairedScores<'_, P> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        with_rows!(L, self.rows, R => self.score::<L, R>(l));
    }
}

impl<P: PairedRows> PairedScores<'_, P> {
    #[inline(always)]
    fn score<L: Products, const R: usize>(self, l: L) {
        let Self { q, head_dim, keys, ahead, out, stride, .. } = self;
        let mut rows: [&[[bf16; 2]]; R] = [&[]; R];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = q[r * head_dim..][..head_dim].as_chunks().0;
        }
        let mut sums = [[l.splat(0.0); HALVES]; R];
        for pair in 0..head_dim / 2 {
            ahead[0].bring(l, pair);
            ahead[1].bring(l, pair);
            let keys = keys.stripe(l, pair, 0);
            for r in 0..R {
                // SAFETY: every row has half as many pairs as the head has elements.
                let q = l.splat_pair(unsafe { *rows[r].get_unchecked(pair) });
                for h in 0..HALVES {
                    sums[r][h] = l.dot_pairs(sums[r][h], keys[h], q);
                }
            }
        }
        for (r, halves) in sums.into_iter().enumerate() {
            for (h, sum) in halves.into_iter().enumerate() {
                l.store(sum, &mut out[r * stride + h]);
            }
        }
    }
}

/// Adds a block's weighted values to the sums of `rows` rows: weights of row `r`, one for each position of
/// the block, start at `weights[r * weight_stride]`, its sums at `sums[r * sum_stride]`.
pub(super) struct PairedSums<'a, P> {
    pub(super) rows: usize,
    pub(super) weights: &'a [bf16],
    pub(super) weight_stride: usize,
    pub(super) values: P,
    /// Pairs of positions.
    pub(super) pairs: Range<usize>,
    pub(super) stripes: usize,
    /// Brought near in as many turns as a block has pairs of positions.
    pub(super) ahead: Ahead<'a>,
    pub(super) sums: &'a mut [Vector],
    pub(super) sum_stride: usize,
}

impl<P: PairedRows> Kernel for PairedSums<'_, P> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        with_rows!(L, self.rows, R => self.add_rows::<L, R>(l));
    }
}

impl<P: PairedRows> PairedSums<'_, P> {
    #[inline(always)]
    fn add_rows<L: Products, const R: usize>(mut self, l: L) {
        let mut stripe = 0;
        // Few rows need more columns for the additions to overlap, as far as registers hold them.
        if R <= 2 && L::WIDE {
            while stripe + 2 <= self.stripes {
                self.add_stripes::<L, R, 2>(l, stripe);
                stripe += 2;
            }
        }
        while stripe < self.stripes {
            self.add_stripes::<L, R, 1>(l, stripe);
            stripe += 1;
        }
    }

    #[inline(always)]
    fn add_stripes<L: Products, const R: usize, const C: usize>(&mut self, l: L, first: usize) {
        let mut rows: [&[[bf16; 2]]; R] = [&[]; R];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = self.weights[r * self.weight_stride..][..KV_BLOCK].as_chunks().0;
        }
        let at = |r: usize, c: usize, h: usize| r * self.sum_stride + 2 * (first + c) + h;
        let mut acc = [[[l.splat(0.0); 2]; C]; R];
        for r in 0..R {
            for c in 0..C {
                for h in 0..2 {
                    acc[r][c][h] = l.load(&self.sums[at(r, c, h)]);
                }
            }
        }
        let ahead = if first == 0 { self.ahead } else { Ahead::default() };
        for pair in self.pairs.clone() {
            ahead.bring(l, pair);
            for c in 0..C {
                let values = self.values.stripe(l, pair, first + c);
                for r in 0..R {
                    let weight = l.splat_pair(rows[r][pair]);
                    for h in 0..2 {
                        acc[r][c][h] = l.dot_pairs(acc[r][c][h], values[h], weight);
                    }
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                for h in 0..2 {
                    l.store(acc[r][c][h], &mut self.sums[at(r, c, h)]);
                }
            }
        }
    }
}

/// Rounds vectors to bf16.
#[inline(always)]
pub(super) fn narrow<L: Lanes>(l: L, from: &[f32], to: &mut [bf16]) {
    let ((from, rest), (to, last)) = (from.as_chunks(), to.as_chunks_mut());
    for (from, to) in from.iter().zip(to) {
        *to = l.narrow_bf16(l.load(from));
    }
    for (from, to) in rest.iter().zip(last) {
        *to = bf16::from_f32(*from);
    }
}
