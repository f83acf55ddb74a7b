//! A tile over a cache of bf16, where the level multiplies bf16 in pairs.

use std::ops::Range;

use half::bf16;

use super::args::SPAN;
use super::pairs::{
    Ahead, Pack, PackedRows, PairedRows, PairedScores, PairedSums, STRIPE, StoredRows, Stripe,
    narrow,
};
use super::registers::{HALVES, most_rows};
use super::softmax::vectors;
use super::sums::Record;
use super::tile::{SPAN_VECTORS, Tile, clipped, common, meets};
use crate::cache::KV_BLOCK;
use crate::cache::kv_element::{Stored, Vector};
use crate::cpu::{Element, LANES, Lanes, Products};

/// Buffers of a thread, kept between tiles.
#[derive(Default)]
pub(super) struct PairedScratch {
    /// `[rows][key_dim]`
    pub(super) q: Vec<bf16>,
    /// `[rows][SPAN]`
    pub(super) weights: Vec<bf16>,
    pub(super) keys: Vec<Stripe>,
    pub(super) values: Vec<Stripe>,
    /// `[32][columns]`: sums of rows of which some don't see a block.
    #[cfg(target_arch = "x86_64")]
    pub(super) mixed: Vec<Vector>,
}

impl<S: Stored> Tile<'_, S> {
    /// Whether this tile is computed by the products of pairs: the same for all tiles of a model.
    #[inline(always)]
    pub(super) fn is_paired<L: Products>(&self) -> bool {
        let shape = self.operands.shape;
        L::PAIRED
            && S::plain(&[]).is_some_and(|plain| S::Plain::as_bf16(plain).is_some())
            && shape.key_dim.is_multiple_of(2)
            && shape.value_dim.is_multiple_of(STRIPE)
    }

    /// Stripes of a block's keys and of its values.
    #[inline(always)]
    pub(super) fn packed(&self) -> (usize, usize) {
        let shape = self.operands.shape;
        (shape.key_dim / 2, KV_BLOCK / 2 * (shape.value_dim / STRIPE))
    }

    /// Rounds the queries of `rows` rows.
    #[inline(always)]
    pub(super) fn pair_queries<L: Lanes>(&self, l: L, rows: usize, scratch: &mut PairedScratch) {
        let (group, head_dim) = (self.operands.group(), self.operands.shape.key_dim);
        scratch.q.resize(rows * head_dim, bf16::ZERO);
        scratch.weights.resize(rows * SPAN, bf16::ZERO);
        let first = self.kv_head * group;
        for (i, to) in scratch.q.chunks_exact_mut(group * head_dim).enumerate() {
            let start = ((self.first_row + i) * self.operands.heads + first) * head_dim;
            narrow(l, &self.operands.q[start..start + to.len()], to);
        }
    }

    /// Computes one span, of whose `blocks` the rows see anything.
    #[inline(always)]
    pub(super) fn attend_pairs<L: Products>(
        &self,
        l: L,
        (span, blocks): (usize, Range<usize>),
        (seen, scores, scratch): (&[Range<usize>], &mut [Vector], &mut PairedScratch),
        records: &mut [Vector],
    ) {
        for block in blocks.clone() {
            self.score_pairs(l, span, block, seen, scores, scratch);
        }
        self.weigh_pairs(l, (span, 0), seen, scores, records, &mut scratch.weights);
        for block in blocks {
            self.sum_pairs(l, span, block, seen, records, scratch);
        }
    }

    /// Makes weights of the scores of the rows from `first` on.
    #[inline(always)]
    pub(super) fn weigh_pairs<L: Products>(
        &self,
        l: L,
        (span, first): (usize, usize),
        seen: &[Range<usize>],
        scores: &mut [Vector],
        records: &mut [Vector],
        weights: &mut [bf16],
    ) {
        let record = Record::new(self.operands.shape.value_dim);
        let scores = scores.chunks_exact_mut(SPAN_VECTORS);
        let rows = seen.iter().zip(scores).zip(weights.chunks_exact_mut(SPAN)).enumerate();
        for (row, ((seen, scores), weights)) in rows.filter(|(_, ((seen, _), _))| !seen.is_empty())
        {
            let softmax = self.softmax(l, (span, first + row), seen, scores);
            let whole = vectors(seen);
            let weights = &mut weights[whole.start * LANES..whole.end * LANES];
            let (largest, total) = (softmax.largest, softmax.weigh_narrow(l, weights));
            record.set(record.row_mut(records, row), largest, total);
        }
    }

    /// Scores of all rows that see anything of a block.
    #[inline(always)]
    pub(super) fn score_pairs<L: Products>(
        &self,
        l: L,
        span: usize,
        block: usize,
        seen: &[Range<usize>],
        scores: &mut [Vector],
        scratch: &mut PairedScratch,
    ) {
        let at = span * (SPAN / KV_BLOCK) + block;
        // While scores are computed the values come near, and with the sums the keys of the next span;
        // those of the first span have nobody before them.
        let turns = self.operands.shape.key_dim / 2;
        let mut ahead = [Ahead::new(as_bf16::<S>(self.values(at)), turns), Ahead::default()];
        if span == self.spans.start {
            ahead[1] = Ahead::new(as_bf16::<S>(self.keys(at + 1)), turns);
        }
        let (elements, width) = (as_bf16::<S>(self.keys(at)), KV_BLOCK);
        let PairedScratch { q, keys, .. } = scratch;
        if seen.len() > most_rows::<L>() {
            keys.resize(self.packed().0, Stripe::default());
            l.call(Pack { elements, width, to: keys });
            let keys = PackedRows { pairs: keys, stripes: 1 };
            self.score_rows(l, block, (keys, ahead), q, seen, scores);
        } else {
            let rows = &(0..self.operands.shape.key_dim);
            let keys = StoredRows { elements, width, rows };
            self.score_rows(l, block, (keys, ahead), q, seen, scores);
        }
    }

    #[inline(always)]
    fn score_rows<L: Products>(
        &self,
        l: L,
        block: usize,
        (keys, ahead): (impl PairedRows, [Ahead<'_>; 2]),
        q: &[bf16],
        seen: &[Range<usize>],
        scores: &mut [Vector],
    ) {
        let head_dim = self.operands.shape.key_dim;
        let mut row = 0;
        while row < seen.len() {
            let rows = most_rows::<L>().min(seen.len() - row);
            if seen[row..row + rows].iter().any(|seen| meets(seen, block)) {
                let out = &mut scores[row * SPAN_VECTORS + block * HALVES..];
                let q = &q[(self.rounded_before + row) * head_dim..];
                let ahead = if row == 0 { ahead } else { Default::default() };
                l.call(PairedScores { q, head_dim, rows, keys, ahead, out, stride: SPAN_VECTORS });
            }
            row += rows;
        }
    }

    /// Adds a block's weighted values to the records of all rows.
    #[inline(always)]
    pub(super) fn sum_pairs<L: Products>(
        &self,
        l: L,
        span: usize,
        block: usize,
        seen: &[Range<usize>],
        records: &mut [Vector],
        scratch: &mut PairedScratch,
    ) {
        let width = self.operands.shape.value_dim;
        let at = span * (SPAN / KV_BLOCK) + block;
        let elements = as_bf16::<S>(self.values(at));
        let next = as_bf16::<S>(self.keys(at + SPAN / KV_BLOCK));
        let PairedScratch { weights, values, .. } = scratch;
        let (record, start) = (Record::new(width), block * KV_BLOCK);
        let sum = BlockPairs { elements, width, weights: &weights[start..], record, next };
        let packs = seen.len() > most_rows::<L>();
        if packs {
            values.resize(self.packed().1, Stripe::default());
            l.call(Pack { elements, width, to: values });
        }
        let values = packs.then_some(&values[..]);
        sum.add_all(l, start, (values, seen), 0..seen.len(), records);
    }
}

impl BlockPairs<'_> {
    /// Adds the block at `start` of the span to the records of the rows `all`, as far as they see it.
    #[inline(always)]
    pub(super) fn add_all<L: Products>(
        self,
        l: L,
        start: usize,
        (packed, seen): (Option<&[Stripe]>, &[Range<usize>]),
        all: Range<usize>,
        records: &mut [Vector],
    ) {
        let mut row = all.start;
        while row < all.end {
            let rows = most_rows::<L>().min(all.end - row);
            let common = common_pairs(&seen[row..row + rows], start);
            for (i, seen) in (row..).zip(&seen[row..row + rows]) {
                let seen = clipped(seen, start);
                let before = if common.is_empty() { seen.end } else { common.start };
                self.add_alone(l, i, seen.start..before, records);
            }
            if let Some(pairs) = packed {
                let values = PackedRows { pairs, stripes: self.width / STRIPE };
                self.add(l, row, rows, common.clone(), values, records);
            } else {
                let (elements, width) = (self.elements, self.width);
                let values = StoredRows { elements, width, rows: &common };
                self.add(l, row, rows, common.clone(), values, records);
            }
            for (i, seen) in (row..).zip(&seen[row..row + rows]) {
                if !common.is_empty() {
                    self.add_alone(l, i, common.end..clipped(seen, start).end, records);
                }
            }
            row += rows;
        }
    }
}

/// The pairs of positions of the block at `start` of which all rows see both; relative to it.
#[inline(always)]
fn common_pairs(seen: &[Range<usize>], start: usize) -> Range<usize> {
    let common = common(seen, start);
    let whole = common.start.next_multiple_of(2)..common.end / 2 * 2;
    if whole.start < whole.end { whole } else { 0..0 }
}

#[inline(always)]
pub(super) fn as_bf16<S: Stored>(stored: &[S]) -> &[bf16] {
    S::plain(stored).and_then(S::Plain::as_bf16).unwrap_or_default()
}

/// A block's values and all rows' weights for it.
#[derive(Clone, Copy)]
pub(super) struct BlockPairs<'a> {
    /// `[32][width]`
    pub(super) elements: &'a [bf16],
    pub(super) width: usize,
    /// From the block's first position on.
    pub(super) weights: &'a [bf16],
    pub(super) record: Record,
    /// What is read next: the keys of the block that lies a span behind.
    pub(super) next: &'a [bf16],
}

impl BlockPairs<'_> {
    /// Adds positions to one row. Only these are read, so what others see is nothing to it, not even NaN.
    #[inline(always)]
    fn add_alone<L: Products>(
        self,
        l: L,
        row: usize,
        positions: Range<usize>,
        records: &mut [Vector],
    ) {
        let values = StoredRows { elements: self.elements, width: self.width, rows: &positions };
        self.add(l, row, 1, positions.clone(), values, records);
    }

    /// Adds positions to `rows` rows from `first` on.
    #[inline(always)]
    fn add<L: Products>(
        self,
        l: L,
        first: usize,
        rows: usize,
        positions: Range<usize>,
        values: impl PairedRows,
        records: &mut [Vector],
    ) {
        if positions.is_empty() {
            return;
        }
        l.call(PairedSums {
            rows,
            weights: &self.weights[first * SPAN..],
            weight_stride: SPAN,
            values,
            pairs: positions.start / 2..positions.end.div_ceil(2),
            stripes: self.width / STRIPE,
            ahead: if first == 0 { Ahead::new(self.next, KV_BLOCK / 2) } else { Ahead::default() },
            sums: &mut records[first * self.record.len()..],
            sum_stride: self.record.len(),
        });
    }
}
