//! How a tile is computed: span by span, scores, softmax weights, weighted values.

use std::cell::RefCell;
use std::ops::Range;

use super::args::SPAN;
use super::paired_tile::PairedScratch;
use super::registers::{HALVES, QueryRows, Scores, Weighted, most_rows};
use super::sums::{Output, Record};
use super::tile::{Operands, SPAN_VECTORS, Tile, clipped, common, meets};
use crate::cache::KV_BLOCK;
use crate::cache::kv_element::{PerPosition, Stored, Vector};
use crate::cpu::{Element, Kernel, LANES, Lanes, Products};

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

/// Rows of one sequence, or of several whose contexts begin alike.
pub(super) struct Together<'a, S> {
    /// All rows, with the blocks of the first sequence.
    pub(super) all: Tile<'a, S>,
    /// The rows of each sequence, if there are several.
    pub(super) each: Vec<Tile<'a, S>>,
    /// Spans before this one are the same for all.
    pub(super) shared: usize,
}

/// Rows and where they go.
pub(super) struct Run<'a, S> {
    pub(super) together: Together<'a, S>,
    pub(super) goal: Goal<'a>,
}

impl<S: Stored> Kernel for Run<'_, S> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { ref together, goal } = self;
        let tile = &together.all;
        let mut scratch = SCRATCH.take();
        let record = Record::new(tile.operands.shape.value_dim);
        let rows = tile.rows();
        scratch.keys.resize(tile.operands.shape.key_dim, PerPosition::default());
        scratch.values.resize(KV_BLOCK * record.columns(), Vector::default());
        scratch.scores.resize(rows * SPAN_VECTORS, Vector::default());
        if tile.is_paired::<L>() {
            tile.pair_queries(l, rows, &mut scratch.paired);
        }
        match goal {
            Goal::Records(records) => {
                let each = records.chunks_exact_mut(rows * record.len());
                for (span, here) in tile.spans.clone().zip(each) {
                    l.call(OneSpan { together, span, scratch: &mut scratch, records: here });
                }
            }
            Goal::Output(output) => {
                let mut here = std::mem::take(&mut scratch.here);
                let mut all = std::mem::take(&mut scratch.all);
                all.resize(rows * record.len(), Vector::default());
                for span in tile.spans.clone() {
                    here.clear();
                    here.resize(rows * record.len(), Vector::default());
                    let (scratch, records) = (&mut scratch, &mut here[..]);
                    l.call(OneSpan { together, span, scratch, records });
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

/// One span of rows, to their records `[rows]`.
struct OneSpan<'a, S> {
    together: &'a Together<'a, S>,
    span: usize,
    scratch: &'a mut Scratch,
    records: &'a mut [Vector],
}

impl<S: Stored> Kernel for OneSpan<'_, S> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Together { all, each, shared } = self.together;
        let is_one = self.span < *shared || each.is_empty();
        let tiles = if is_one { std::slice::from_ref(all) } else { each };
        let record = Record::new(all.operands.shape.value_dim).len();
        let mut rest = self.records;
        for tile in tiles {
            let (own, behind) = rest.split_at_mut(tile.rows() * record);
            tile.attend(l, self.span, self.scratch, own);
            rest = behind;
        }
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
        scratch.seen.clear();
        for row in 0..self.rows() {
            let seen = self.visible(row).within(first..first + SPAN);
            if !seen.is_empty() {
                (start, end) = (start.min(seen.start), end.max(seen.end));
            }
            scratch.seen.push(seen);
        }
        if start >= end {
            return;
        }
        let blocks = start / KV_BLOCK..end.div_ceil(KV_BLOCK);
        let Scratch { seen, scores, paired, .. } = &mut *scratch;
        #[cfg(target_arch = "x86_64")]
        if let Some(amx) = self.amx::<L>() {
            return self.attend_tiles(l, amx, (span, blocks), (seen, scores, paired), records);
        }
        if self.is_paired::<L>() {
            return self.attend_pairs(l, (span, blocks), (seen, scores, paired), records);
        }
        for block in blocks.clone() {
            self.score(l, span, block, scratch);
        }
        for (row, seen) in scratch.seen.iter().enumerate().filter(|(_, seen)| !seen.is_empty()) {
            let scores = &mut scratch.scores[row * SPAN_VECTORS..(row + 1) * SPAN_VECTORS];
            let softmax = self.softmax(l, (span, row), seen, scores);
            let (largest, total) = (softmax.largest, softmax.weigh(l));
            record.set(record.row_mut(records, row), largest, total);
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
