//! How a tile is computed: span by span, scores, softmax weights, weighted values.

use std::cell::RefCell;
use std::ops::Range;

use super::args::SPAN;
use super::paired_tile::{PairedScratch, pair_weights};
use super::registers::{HALVES, QueryRows, Scores, Weighted, most_rows};
use super::sums::{Output, Record};
use super::tile::{Operands, SPAN_VECTORS, Tile, clipped, common, meets};
use crate::cache::KV_BLOCK;
use crate::cache::kv_element::{PerPosition, Stored, Vector};
#[cfg(target_arch = "x86_64")]
use crate::cpu::amx::Tiles;
use crate::cpu::{Element, Kernel, LANES, Lanes, Products, math};

/// Where a tile's results go.
pub(super) enum Goal<'a> {
    /// The rows of the output, if the tile has all spans.
    Output(Output<'a>),
    /// A record per span and row, `[spans][rows]`, all zero before.
    Records(&'a mut [Vector]),
}

/// Buffers of a thread, kept between tiles.
#[derive(Default)]
struct Scratch {
    /// `[key_dim]`: a block's keys.
    keys: Vec<PerPosition>,
    /// `[32][vectors]`: a block's values.
    values: Vec<Vector>,
    /// `[rows][SPAN_VECTORS]`: scores of the span's positions, then their weights.
    scores: Vec<Vector>,
    /// `[rows]`: positions of the span that each row sees.
    seen: Vec<Range<usize>>,
    /// `[rows]` records: this span.
    here: Vec<Vector>,
    /// `[rows]` records: this span and those before.
    all: Vec<Vector>,
    paired: PairedScratch,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A tile and where it goes.
pub(super) struct Run<'a, S> {
    pub(super) tile: Tile<'a, S>,
    pub(super) goal: Goal<'a>,
}

impl<S: Stored> Kernel for Run<'_, S> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { tile, goal } = self;
        let mut scratch = SCRATCH.take();
        let record = Record::new(tile.operands.shape.value_dim);
        let rows = tile.positions.len() * tile.operands.group();
        scratch.keys.resize(tile.operands.shape.key_dim, PerPosition::default());
        scratch.values.resize(KV_BLOCK * record.columns(), Vector::default());
        scratch.scores.resize(rows * SPAN_VECTORS, Vector::default());
        scratch.seen.resize(rows, 0..0);
        if tile.is_paired::<L>() {
            tile.pair_queries(l, rows, &mut scratch.paired);
        }
        match goal {
            Goal::Records(records) => {
                let each = records.chunks_exact_mut(rows * record.len());
                for (span, here) in tile.spans.clone().zip(each) {
                    tile.attend(l, span, &mut scratch, here);
                }
            }
            Goal::Output(output) => {
                let mut here = std::mem::take(&mut scratch.here);
                let mut all = std::mem::take(&mut scratch.all);
                all.resize(rows * record.len(), Vector::default());
                for span in tile.spans.clone() {
                    here.clear();
                    here.resize(rows * record.len(), Vector::default());
                    tile.attend(l, span, &mut scratch, &mut here);
                    for row in 0..rows {
                        let visible = tile.visible(row);
                        record.merge(
                            l,
                            visible,
                            span,
                            record.row(&here, row),
                            record.row_mut(&mut all, row),
                        );
                    }
                }
                for row in 0..rows {
                    output.write(l, row, record.row(&all, row));
                }
                (scratch.here, scratch.all) = (here, all);
            }
        }
        SCRATCH.set(scratch);
    }
}

impl<S: Stored> Tile<'_, S> {
    /// Computes one span: scores, weights and weighted values of all rows, to their records.
    #[inline(always)]
    fn attend<L: Products>(
        &self,
        l: L,
        span: usize,
        scratch: &mut Scratch,
        records: &mut [Vector],
    ) {
        let record = Record::new(self.operands.shape.value_dim);
        let first = span * SPAN;
        let (mut start, mut end) = (SPAN, 0);
        for row in 0..scratch.seen.len() {
            let seen = self.visible(row).within(first..first + SPAN);
            if !seen.is_empty() {
                (start, end) = (start.min(seen.start), end.max(seen.end));
            }
            scratch.seen[row] = seen;
        }
        let blocks = start / KV_BLOCK..end.div_ceil(KV_BLOCK);
        #[cfg(target_arch = "x86_64")]
        if let Some(amx) = self.amx::<L>() {
            let mut paired = std::mem::take(&mut scratch.paired);
            self.pack_span(l, span, blocks.clone(), &mut paired);
            let mut tiles = Tiles::new(amx);
            self.score_tiles(
                &mut tiles,
                blocks.clone(),
                &scratch.seen,
                &mut scratch.scores,
                &paired,
            );
            for row in 0..scratch.seen.len() {
                self.weigh(l, span, row, scratch, record.row_mut(records, row));
                pair_weights(l, row, &scratch.seen[row], &scratch.scores, &mut paired);
            }
            self.sum_tiles(&mut tiles, blocks.clone(), &scratch.seen, records, &mut paired);
            self.sum_rest(l, span, blocks, &scratch.seen, records, &paired);
            scratch.paired = paired;
            return;
        }
        if self.is_paired::<L>() {
            let mut paired = std::mem::take(&mut scratch.paired);
            for block in blocks.clone() {
                let Scratch { seen, scores, .. } = &mut *scratch;
                self.score_pairs(l, span, block, seen, scores, &mut paired);
            }
            for row in 0..scratch.seen.len() {
                self.weigh(l, span, row, scratch, record.row_mut(records, row));
                pair_weights(l, row, &scratch.seen[row], &scratch.scores, &mut paired);
            }
            for block in blocks {
                self.sum_pairs(l, span, block, &scratch.seen, records, &mut paired);
            }
            scratch.paired = paired;
            return;
        }
        for block in blocks.clone() {
            self.score(l, span, block, scratch);
        }
        for row in 0..scratch.seen.len() {
            self.weigh(l, span, row, scratch, record.row_mut(records, row));
        }
        for block in blocks {
            self.accumulate(l, span, block, start..end, scratch, records);
        }
    }

    /// Scores of all rows that see anything of a block.
    #[inline(always)]
    fn score<L: Lanes>(&self, l: L, span: usize, block: usize, scratch: &mut Scratch) {
        let Scratch { keys, scores, seen, .. } = scratch;
        let at = span * (SPAN / KV_BLOCK) + block;
        let stored = self.keys(at);
        match S::plain(stored) {
            Some(plain) if widens_in_place::<L, S>(seen.len()) => {
                let keys = S::plain(self.keys(at + 1)).unwrap_or_default();
                let values = S::plain(self.values(at)).unwrap_or_default();
                let next = [keys, values];
                self.score_with(l, block, plain, next, seen, scores);
            }
            _ => {
                bring_near(l, self.keys(at + 1));
                bring_near(l, self.values(at));
                S::read_keys(l, stored, keys);
                let keys = keys.as_flattened().as_flattened();
                self.score_with(l, block, keys, [&[]; 2], seen, scores);
            }
        }
    }

    #[inline(always)]
    fn score_with<L: Lanes, E: Element>(
        &self,
        l: L,
        block: usize,
        keys: &[E],
        next: [&[E]; 2],
        seen: &[Range<usize>],
        scores: &mut [Vector],
    ) {
        let Operands { q, heads, shape, .. } = *self.operands;
        let (group, head_dim) = (self.operands.group(), shape.key_dim);
        let first = (self.first_row * heads + self.kv_head * group) * head_dim;
        let q = QueryRows { q: &q[first..], group, stride: heads * head_dim, head_dim };
        let mut row = 0;
        while row < seen.len() {
            let rows = most_rows::<L>().min(seen.len() - row);
            if seen[row..row + rows].iter().any(|seen| meets(seen, block)) {
                let out = &mut scores[row * SPAN_VECTORS + block * HALVES..];
                l.call(Scores { q, first: row, rows, keys, next, out, stride: SPAN_VECTORS });
            }
            row += rows;
        }
    }

    /// Turns a row's scores into softmax weights, relative to the largest score of the span.
    #[inline(always)]
    fn weigh<L: Lanes>(
        &self,
        l: L,
        span: usize,
        row: usize,
        scratch: &mut Scratch,
        record: &mut [Vector],
    ) {
        let seen = scratch.seen[row].clone();
        if seen.is_empty() {
            return;
        }
        let whole = seen.start / LANES..seen.end.div_ceil(LANES);
        let scores = &mut scratch.scores[row * SPAN_VECTORS..(row + 1) * SPAN_VECTORS];
        for scores in &mut scores[whole.clone()] {
            let scaled = self.scaled(l, l.load(scores));
            l.store(scaled, scores);
        }
        if let Some(slopes) = self.operands.per_head.slopes {
            self.subtract_distances(span, row, &slopes.host, &whole, scores);
        }
        let each = scores.as_flattened_mut();
        each[whole.start * LANES..seen.start].fill(f32::NEG_INFINITY);
        each[seen.end..whole.end * LANES].fill(f32::NEG_INFINITY);
        let mut largest = l.splat(f32::NEG_INFINITY);
        for scores in &scores[whole.clone()] {
            largest = l.max(largest, l.load(scores));
        }
        let largest = l.largest(largest);
        let mut total = l.splat(0.0);
        for scores in &mut scores[whole] {
            let weights = math::exp(l, l.sub(l.load(scores), l.splat(largest)));
            total = l.add(total, weights);
            l.store(weights, scores);
        }
        Record::new(self.operands.shape.value_dim).set(record, largest, l.sum(total));
    }

    /// Lowers a row's scores by the distance of each position from the row's own, times the slope
    /// of its head.
    #[inline(always)]
    fn subtract_distances(
        &self,
        span: usize,
        row: usize,
        slopes: &[f32],
        whole: &Range<usize>,
        scores: &mut [Vector],
    ) {
        let group = self.operands.group();
        let slope = slopes[self.kv_head * group + row % group];
        let own = self.positions.position(row / group) as usize;
        let first = span * SPAN + whole.start * LANES;
        for (i, score) in scores[whole.clone()].as_flattened_mut().iter_mut().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
            let distance = own.abs_diff(first + i) as f32;
            *score -= slope * distance;
        }
    }

    #[inline(always)]
    fn scaled<L: Lanes>(&self, l: L, scores: L::V) -> L::V {
        let scores = l.mul(scores, l.splat(self.operands.params.scale));
        match self.operands.params.softcap {
            Some(cap) => l.mul(math::tanh(l, l.div(scores, l.splat(cap))), l.splat(cap)),
            None => scores,
        }
    }

    /// Adds a block's weighted values to the records of all rows; no row sees more of the span
    /// than `read`.
    #[inline(always)]
    fn accumulate<L: Lanes>(
        &self,
        l: L,
        span: usize,
        block: usize,
        read: Range<usize>,
        scratch: &mut Scratch,
        records: &mut [Vector],
    ) {
        let head_dim = self.operands.shape.value_dim;
        let Scratch { values, scores, seen, .. } = scratch;
        let stored = self.values(span * (SPAN / KV_BLOCK) + block);
        let whole = head_dim.is_multiple_of(LANES) && widens_in_place::<L, S>(seen.len());
        match S::plain(stored) {
            Some(plain) if whole => {
                self.accumulate_with(l, block, plain, head_dim, (seen, scores), records);
            }
            _ => {
                let start = block * KV_BLOCK;
                let columns = head_dim.div_ceil(LANES);
                for offset in clipped(&read, start) {
                    let to = &mut values[offset * columns..(offset + 1) * columns];
                    S::read_value(l, stored, head_dim, offset, to);
                }
                let (values, stride) = (values.as_flattened(), columns * LANES);
                self.accumulate_with(l, block, values, stride, (seen, scores), records);
            }
        }
    }

    #[inline(always)]
    fn accumulate_with<L: Lanes, E: Element>(
        &self,
        l: L,
        block: usize,
        values: &[E],
        stride: usize,
        (seen, scores): (&[Range<usize>], &[Vector]),
        records: &mut [Vector],
    ) {
        let record = Record::new(self.operands.shape.value_dim);
        let add = BlockSum { block, values, stride, scores: scores.as_flattened(), record };
        let mut row = 0;
        while row < seen.len() {
            let rows = most_rows::<L>().min(seen.len() - row);
            let start = block * KV_BLOCK;
            // What all rows see is summed together; before and behind it each row is alone.
            let common = common(&seen[row..row + rows], start);
            let alone = || (row..).zip(&seen[row..row + rows]).map(|(i, s)| (i, clipped(s, start)));
            if common.is_empty() {
                for (i, seen) in alone() {
                    add.add(l, i, 1, seen, records);
                }
            } else {
                for (i, seen) in alone() {
                    add.add(l, i, 1, seen.start..common.start, records);
                }
                add.add(l, row, rows, common.clone(), records);
                for (i, seen) in alone() {
                    add.add(l, i, 1, common.end..seen.end, records);
                }
            }
            row += rows;
        }
    }
}

/// Whether the rows are so few that stored elements are widened where they are used.
#[inline(always)]
fn widens_in_place<L: Lanes, S>(rows: usize) -> bool {
    rows <= most_rows::<L>() || size_of::<S>() == size_of::<f32>()
}

/// Prefetches all cache lines of `stored`.
#[inline(always)]
fn bring_near<L: Lanes, S>(l: L, stored: &[S]) {
    const LINE: usize = 64;
    for i in (0..stored.len()).step_by(LINE / size_of::<S>()) {
        l.prefetch(stored[i..].as_ptr());
    }
}

/// A block's values and all rows' weights for it.
#[derive(Clone, Copy)]
struct BlockSum<'a, E> {
    block: usize,
    values: &'a [E],
    stride: usize,
    scores: &'a [f32],
    record: Record,
}

impl<E: Element> BlockSum<'_, E> {
    /// Adds the block's `positions` to the records of `rows` rows from `first` on.
    #[inline(always)]
    fn add<L: Lanes>(
        self,
        l: L,
        first: usize,
        rows: usize,
        positions: Range<usize>,
        records: &mut [Vector],
    ) {
        let Range { start, end } = positions;
        if start >= end {
            return;
        }
        l.call(Weighted {
            rows,
            weights: &self.scores[first * SPAN + self.block * KV_BLOCK + start..],
            weight_stride: SPAN,
            values: &self.values[start * self.stride..],
            stride: self.stride,
            positions: end - start,
            columns: self.record.columns(),
            sums: &mut records[first * self.record.len()..],
            sum_stride: self.record.len(),
        });
    }
}
