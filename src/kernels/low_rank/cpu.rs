//! Low-rank terms on the CPU: tiles of a few rows by a few ranks, then by a few vectors of outputs.

use std::cell::RefCell;
use std::ops::Range;

use super::args::{Elements, LowRank, LowRankRows};
use crate::cpu::{Element, Kernel, LANES, Lanes, Level, Products, load_tail};
use crate::fresh::Parts;
use crate::pool;

/// Fewer multiply-adds than this stay on the calling thread.
const PARALLEL_FROM: usize = 1 << 16;
/// Rows of a tile, which share what is loaded of the matrices.
const TILE_ROWS: usize = 4;
/// Rows of a chunk, at most.
const CHUNK_ROWS: usize = 2 * TILE_ROWS;
/// Ranks of a tile.
const TILE_RANKS: usize = 4;
/// Outputs of a chunk, at least, where few rows are cut by outputs.
const LEAST_OUTPUTS: usize = 256;

thread_local! {
    /// `down(x)` of a chunk's rows, `[rows, rank]`, kept between chunks.
    static INNER: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Some rows of a part, and some of their outputs.
struct Chunk<'a> {
    part: LowRankRows<'a>,
    rows: &'a [u32],
    outputs: Range<usize>,
}

/// Adds all parts to the rows of `y`, with checked arguments.
pub(super) fn low_rank_add(level: Level, x: &[f32], y: &mut [f32], parts: &[LowRankRows<'_>]) {
    let chunks = chunks(parts);
    let y = Parts::new(y);
    let run = |at: usize| {
        let Chunk { part, rows, outputs } = &chunks[at];
        let LowRankRows { term, factor, .. } = *part;
        let add = Add { x, y: &y, term, rows, outputs: outputs.clone(), factor };
        let mut inner = INNER.take();
        match &term.elements {
            Elements::F32(down, up) => level.run(add.of(down, up, &mut inner)),
            Elements::Bf16(down, up) => level.run(add.of(down, up, &mut inner)),
            Elements::F16(down, up) => level.run(add.of(down, up, &mut inner)),
        }
        INNER.set(inner);
    };
    if parts.iter().map(work).sum::<usize>() < PARALLEL_FROM {
        (0..chunks.len()).for_each(run);
    } else {
        pool::for_each_chunk(chunks.len(), run);
    }
}

/// Multiply-adds of a part.
fn work(part: &LowRankRows<'_>) -> usize {
    let LowRank { rank, inputs, outputs, .. } = part.term;
    part.rows.len() * rank * (inputs + outputs)
}

/// Cuts parts into blocks of rows, and by outputs where those are too few for the threads: what is
/// computed of `down` is computed again for each cut.
fn chunks<'a>(parts: &[LowRankRows<'a>]) -> Vec<Chunk<'a>> {
    let blocks: usize = parts.iter().map(|part| part.rows.len().div_ceil(CHUNK_ROWS)).sum();
    let cuts = (2 * pool::threads()).div_ceil(blocks.max(1));
    let mut chunks = Vec::with_capacity(blocks * cuts);
    for part in parts {
        let outputs = part.term.outputs;
        let width = outputs.div_ceil(cuts).next_multiple_of(LANES).max(LEAST_OUTPUTS);
        for rows in part.rows.chunks(CHUNK_ROWS) {
            for first in (0..outputs).step_by(width) {
                let outputs = first..outputs.min(first + width);
                chunks.push(Chunk { part: *part, rows, outputs });
            }
        }
    }
    chunks
}

/// What a chunk adds, whatever its matrices are stored as.
struct Add<'a> {
    /// `[T, inputs]`
    x: &'a [f32],
    /// `[T, outputs]`
    y: &'a Parts<'a, f32>,
    term: &'a LowRank,
    rows: &'a [u32],
    outputs: Range<usize>,
    factor: f32,
}

impl<'a> Add<'a> {
    fn of<E>(self, down: &'a [E], up: &'a [E], inner: &'a mut Vec<f32>) -> AddElements<'a, E> {
        inner.resize(self.rows.len() * self.term.rank, 0.0);
        AddElements { add: self, down, up, inner }
    }
}

/// As [`Add`], with matrices of one type.
struct AddElements<'a, E> {
    add: Add<'a>,
    down: &'a [E],
    up: &'a [E],
    inner: &'a mut [f32],
}

impl<E: Element> Kernel for AddElements<'_, E> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { add, down, up, inner } = self;
        let rank = add.term.rank;
        let rows = add.rows.chunks(TILE_ROWS).zip(inner.chunks_mut(TILE_ROWS * rank.max(1)));
        for (rows, inner) in rows {
            if let Ok(rows) = <[u32; TILE_ROWS]>::try_from(rows) {
                add.tile(l, rows, down, up, inner);
                continue;
            }
            for (row, inner) in rows.iter().zip(inner.chunks_mut(rank.max(1))) {
                add.tile(l, [*row], down, up, inner);
            }
        }
    }
}

impl Add<'_> {
    /// Some rows; `inner [ROWS, rank]` is filled on the way.
    #[inline(always)]
    fn tile<L: Lanes, E: Element, const ROWS: usize>(
        &self,
        l: L,
        rows: [u32; ROWS],
        down: &[E],
        up: &[E],
        inner: &mut [f32],
    ) {
        let LowRank { rank, inputs, .. } = *self.term;
        let x = rows.map(|row| &self.x[row as usize * inputs..][..inputs]);
        let mut first = 0;
        while first < rank {
            if first + TILE_RANKS <= rank {
                dots::<L, E, ROWS, TILE_RANKS>(l, x, down, first, rank, inner);
                first += TILE_RANKS;
            } else {
                dots::<L, E, ROWS, 1>(l, x, down, first, rank, inner);
                first += 1;
            }
        }
        let (mut at, end) = (self.outputs.start, self.outputs.end);
        while at < end {
            if at + 4 * LANES <= end {
                self.sums::<L, E, ROWS, 4>(l, rows, up, inner, at);
                at += 4 * LANES;
            } else if at + LANES <= end {
                self.sums::<L, E, ROWS, 1>(l, rows, up, inner, at);
                at += LANES;
            } else {
                self.last_sums(l, rows, up, inner, at);
                at = end;
            }
        }
    }

    /// `VECTORS` vectors of outputs from `at` on.
    #[inline(always)]
    fn sums<L: Lanes, E: Element, const ROWS: usize, const VECTORS: usize>(
        &self,
        l: L,
        rows: [u32; ROWS],
        up: &[E],
        inner: &[f32],
        at: usize,
    ) {
        let LowRank { rank, outputs, .. } = *self.term;
        let mut sums = [[l.splat(0.0); VECTORS]; ROWS];
        for r in 0..rank {
            let up = up[r * outputs + at..][..VECTORS * LANES].as_chunks::<LANES>().0;
            for (vector, up) in up.iter().enumerate() {
                let up = E::load(l, up);
                for (row, sums) in sums.iter_mut().enumerate() {
                    sums[vector] = l.mul_add(up, l.splat(inner[row * rank + r]), sums[vector]);
                }
            }
        }
        for (row, sums) in rows.into_iter().zip(sums) {
            let start = row as usize * outputs + at;
            // SAFETY: no other chunk has these rows and outputs.
            let y = unsafe { self.y.part(start..start + VECTORS * LANES) };
            for (y, sum) in y.as_chunks_mut::<LANES>().0.iter_mut().zip(sums) {
                let sum = l.mul_add(sum, l.splat(self.factor), l.load(y));
                l.store(sum, y);
            }
        }
    }

    /// Outputs from `at` to the end of the chunk, less than a vector.
    #[inline(always)]
    fn last_sums<L: Lanes, E: Element, const ROWS: usize>(
        &self,
        l: L,
        rows: [u32; ROWS],
        up: &[E],
        inner: &[f32],
        at: usize,
    ) {
        let LowRank { rank, outputs, .. } = *self.term;
        let end = self.outputs.end;
        for (i, row) in rows.into_iter().enumerate() {
            let mut sum = l.splat(0.0);
            for r in 0..rank {
                let up = load_tail(l, &up[r * outputs + at..r * outputs + end]);
                sum = l.mul_add(up, l.splat(inner[i * rank + r]), sum);
            }
            // SAFETY: no other chunk has these rows and outputs.
            let y =
                unsafe { self.y.part(row as usize * outputs + at..row as usize * outputs + end) };
            let sum = l.mul_add(sum, l.splat(self.factor), load_tail(l, y));
            let mut lanes = [0.0; LANES];
            l.store(sum, &mut lanes);
            y.copy_from_slice(&lanes[..end - at]);
        }
    }
}

/// `RANKS` elements of `down(x)` from `first` on, for each row.
#[inline(always)]
fn dots<L: Lanes, E: Element, const ROWS: usize, const RANKS: usize>(
    l: L,
    x: [&[f32]; ROWS],
    down: &[E],
    first: usize,
    rank: usize,
    inner: &mut [f32],
) {
    let inputs = x[0].len();
    let mut sums = [[l.splat(0.0); RANKS]; ROWS];
    let whole = inputs / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        let mut rows = [l.splat(0.0); ROWS];
        for (row, x) in rows.iter_mut().zip(x) {
            *row = l.load(&x[at..].as_chunks().0[0]);
        }
        for r in 0..RANKS {
            let down = E::load(l, &down[(first + r) * inputs + at..].as_chunks().0[0]);
            for (sums, row) in sums.iter_mut().zip(rows) {
                sums[r] = l.mul_add(down, row, sums[r]);
            }
        }
    }
    for r in 0..RANKS {
        let start = (first + r) * inputs;
        let last = load_tail(l, &down[start + whole..start + inputs]);
        for (row, (sums, x)) in sums.iter_mut().zip(x).enumerate() {
            let sum = l.mul_add(last, load_tail(l, &x[whole..]), sums[r]);
            inner[row * rank + first + r] = l.sum(sum);
        }
    }
}
