//! A span over a cache of bf16 in tile registers, where the level has them: as in `pairs`, with the order of
//! additions that the registers have.
//!
//! A row's values are summed in tiles for the blocks that it sees all of, in ascending order, and by pairs for the
//! others, behind them. So a row's bits don't depend on the rows beside it, nor a row on what it doesn't see, not even
//! on NaN.

use std::ops::Range;

use super::args::SPAN;
use super::paired_tile::{BlockPairs, PairedScratch, as_bf16};
use super::pairs::{Pack, STRIPE, Stripe};
use super::registers::HALVES;
use super::sums::Record;
use super::tile::{SPAN_VECTORS, Tile, meets};
use crate::cache::KV_BLOCK;
use crate::cache::kv_element::{Stored, Vector};
use crate::cpu::Products;
use crate::cpu::amx::rows::RowSteps;
use crate::cpu::amx::{Amx, TILE_ROWS, Tiles};

/// Rows that are multiplied at once: two tiles.
const ROWS: usize = 2 * TILE_ROWS;
/// Elements of a key in a step.
const STEP: usize = 32;
const _: () = assert!(KV_BLOCK == STEP, "a block's positions are one step of its weighted values");

impl<S: Stored> Tile<'_, S> {
    /// The tile registers, if this tile is computed in them: the same for all tiles of a model.
    #[inline(always)]
    pub(super) fn amx<L: Products>(&self) -> Option<Amx> {
        let whole = self.operands.shape.key_dim.is_multiple_of(STEP);
        self.operands.amx.filter(|_| whole && self.is_paired::<L>())
    }

    /// Computes one span, of whose `blocks` the rows see anything.
    #[inline(always)]
    pub(super) fn attend_tiles<L: Products>(
        &self,
        l: L,
        amx: Amx,
        (span, blocks): (usize, Range<usize>),
        (seen, scores, scratch): (&[Range<usize>], &mut [Vector], &mut PairedScratch),
        records: &mut [Vector],
    ) {
        let record = Record::new(self.operands.shape.value_dim).len();
        self.pack_span(l, span, blocks.clone(), scratch);
        let mut tiles = Tiles::new(amx);
        // So few rows at a time that their scores and weights stay near.
        for (first, seen) in (0..).step_by(ROWS).zip(seen.chunks(ROWS)) {
            let rows = first..first + seen.len();
            let records = &mut records[rows.start * record..rows.end * record];
            self.score_tiles(&mut tiles, blocks.clone(), (first, seen), scores, scratch);
            self.weigh_pairs(l, (span, first), seen, scores, records, &mut scratch.weights);
            self.sum_tiles(&mut tiles, blocks.clone(), seen, records, scratch);
            self.sum_rest(l, span, blocks.clone(), seen, records, scratch);
        }
    }

    /// Interleaves keys and values of a span's blocks.
    #[inline(always)]
    fn pack_span<L: Products>(
        &self,
        l: L,
        span: usize,
        blocks: Range<usize>,
        scratch: &mut PairedScratch,
    ) {
        let (of_keys, of_values) = self.packed();
        scratch.keys.resize(blocks.len() * of_keys, Stripe::default());
        scratch.values.resize(blocks.len() * of_values, Stripe::default());
        let keys = scratch.keys.chunks_exact_mut(of_keys);
        let values = scratch.values.chunks_exact_mut(of_values);
        for (block, (keys, values)) in blocks.zip(keys.zip(values)) {
            let at = span * (SPAN / KV_BLOCK) + block;
            l.call(Pack { elements: as_bf16::<S>(self.keys(at)), width: KV_BLOCK, to: keys });
            let (elements, width) = (as_bf16::<S>(self.values(at)), self.operands.shape.value_dim);
            l.call(Pack { elements, width, to: values });
        }
    }

    /// Scores of at most [`ROWS`] rows from `first` on, as far as any of them sees anything of a block.
    fn score_tiles(
        &self,
        tiles: &mut Tiles,
        blocks: Range<usize>,
        (first, seen): (usize, &[Range<usize>]),
        scores: &mut [Vector],
        scratch: &PairedScratch,
    ) {
        let (key_dim, of_keys, rows) = (self.operands.shape.key_dim, self.packed().0, seen.len());
        let first = self.rounded_before + first;
        let q = &scratch.q[first * key_dim..(first + rows) * key_dim];
        for (block, keys) in blocks.zip(scratch.keys.chunks_exact(of_keys)) {
            if !seen.iter().any(|seen| meets(seen, block)) {
                continue;
            }
            let scores = &mut scores[block * HALVES..];
            assert!(scores.len() >= (rows - 1) * SPAN_VECTORS + HALVES);
            let work = RowSteps {
                steps: key_dim / STEP,
                left: q.as_ptr().cast(),
                left_row: size_of_val(&q[..key_dim]),
                right: keys.as_ptr().cast(),
                right_row: size_of::<Stripe>(),
                sums: scores.as_mut_ptr().cast(),
                sums_row: size_of::<[Vector; SPAN_VECTORS]>(),
                fresh: true,
            };
            // SAFETY: `q` holds the rows, `keys` sixteen stripes for each step, `scores` two vectors of
            // every row (checked above).
            unsafe { tiles.rows(rows, &work) };
        }
    }

    /// Adds the weighted values of the blocks that rows see all of to their records.
    fn sum_tiles(
        &self,
        tiles: &mut Tiles,
        blocks: Range<usize>,
        seen: &[Range<usize>],
        records: &mut [Vector],
        scratch: &mut PairedScratch,
    ) {
        let record = Record::new(self.operands.shape.value_dim);
        let PairedScratch { weights, values, mixed, .. } = scratch;
        let weights = &weights[..seen.len() * SPAN];
        let sum = |tiles: &mut Tiles, range: Range<usize>, sums: &mut [Vector]| {
            let values = &values[(range.start - blocks.start) * self.packed().1..];
            self.sum_whole(tiles, (weights, values), range, sums);
        };
        let all = seen.iter().map(whole).filter(|whole| !whole.is_empty());
        let Some(all) = all.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)) else {
            return;
        };
        let common = common_whole(seen).unwrap_or(all.end..all.end);
        let mut each = |tiles: &mut Tiles, blocks: Range<usize>, records: &mut [Vector]| {
            for block in blocks {
                mixed.clear();
                mixed.extend_from_slice(records);
                sum(tiles, block..block + 1, mixed);
                let rows = records.chunks_exact_mut(record.len());
                for ((row, summed), seen) in rows.zip(mixed.chunks_exact(record.len())).zip(seen) {
                    if whole(seen).contains(&block) {
                        row.copy_from_slice(summed);
                    }
                }
            }
        };
        each(tiles, all.start..common.start, records);
        if !common.is_empty() {
            sum(tiles, common.clone(), records);
        }
        each(tiles, common.end..all.end, records);
    }

    /// Adds the weighted values of `blocks`, the first of `values`, to the records of all rows.
    fn sum_whole(
        &self,
        tiles: &mut Tiles,
        (weights, values): (&[half::bf16], &[Stripe]),
        blocks: Range<usize>,
        sums: &mut [Vector],
    ) {
        let row = Record::new(self.operands.shape.value_dim).len();
        let (rows, stripes) = (weights.len() / SPAN, self.operands.shape.value_dim / STRIPE);
        assert!(
            blocks.end * KV_BLOCK <= SPAN
                && values.len() >= blocks.len() * self.packed().1
                && sums.len() >= rows * row
        );
        for stripe in 0..stripes {
            let work = RowSteps {
                steps: blocks.len(),
                left: weights[blocks.start * KV_BLOCK..].as_ptr().cast(),
                left_row: size_of_val(&weights[..SPAN]),
                right: values[stripe..].as_ptr().cast(),
                right_row: stripes * size_of::<Stripe>(),
                sums: sums[stripe * HALVES..].as_mut_ptr().cast(),
                sums_row: row * size_of::<Vector>(),
                fresh: false,
            };
            // SAFETY: weights, values and sums are as long as rows and blocks need (checked above).
            unsafe { tiles.rows(rows, &work) };
        }
    }

    /// Adds the weighted values of the blocks that rows see a part of to their records.
    #[inline(always)]
    fn sum_rest<L: Products>(
        &self,
        l: L,
        span: usize,
        blocks: Range<usize>,
        seen: &[Range<usize>],
        records: &mut [Vector],
        scratch: &PairedScratch,
    ) {
        let (width, of_values) = (self.operands.shape.value_dim, self.packed().1);
        let common = common_whole(seen).unwrap_or_default();
        for (block, values) in blocks.zip(scratch.values.chunks_exact(of_values)) {
            if common.contains(&block) {
                continue;
            }
            let elements = as_bf16::<S>(self.values(span * (SPAN / KV_BLOCK) + block));
            let (start, record) = (block * KV_BLOCK, Record::new(width));
            let weights = &scratch.weights[start..];
            let sum = BlockPairs { elements, width, weights, record, next: &[] };
            let part = |seen: &Range<usize>| meets(seen, block) && !whole(seen).contains(&block);
            let mut row = 0;
            for run in seen.chunk_by(|a, b| part(a) == part(b)) {
                if part(&run[0]) {
                    sum.add_all(l, start, (Some(values), seen), row..row + run.len(), records);
                }
                row += run.len();
            }
        }
    }
}

/// The blocks of a span of which all positions are seen.
fn whole(seen: &Range<usize>) -> Range<usize> {
    seen.start.div_ceil(KV_BLOCK)..seen.end / KV_BLOCK
}

/// The blocks of a span of which all rows see all positions.
fn common_whole(seen: &[Range<usize>]) -> Option<Range<usize>> {
    let common = seen.iter().map(whole).reduce(|a, b| a.start.max(b.start)..a.end.min(b.end));
    common.filter(|common| !common.is_empty())
}
