//! One tile: some query rows of one sequence, for one KV head and the query heads that share it.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::super::KV_BLOCK;
use super::super::cpu::{Element, Kernel, LANES, Lanes, load_tail, math};
use super::super::fresh::Parts;
use super::AttentionParams;

/// Sixteen floats.
type Vector = [f32; LANES];
/// One number per position of a KV block.
type PerPosition = [Vector; KV_BLOCK / LANES];

/// See the module; row `r` of the tile is query `r / group` and head `r % group` of the group.
pub(super) struct Tile<'a, E> {
    pub(super) q: &'a [f32],
    pub(super) k: &'a [E],
    pub(super) v: &'a [E],
    /// Positions of the tile's queries.
    pub(super) positions: &'a [u32],
    pub(super) blocks: &'a [u32],
    pub(super) params: AttentionParams,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) kv_head: usize,
    pub(super) head_dim: usize,
    /// Row of the first query in `q`.
    pub(super) first_row: usize,
    pub(super) out: &'a Parts<'a, MaybeUninit<f32>>,
}

/// Buffers of a thread, kept between tiles.
#[derive(Default)]
struct Scratch {
    /// `[head_dim]`: one number per position, so that a query meets 32 positions at a time.
    keys: Vec<PerPosition>,
    /// `[32][vectors]`
    values: Vec<Vector>,
    /// `[rows]`
    weights: Vec<PerPosition>,
    /// `[rows][vectors]`: the sums of weighted values so far.
    sums: Vec<Vector>,
    /// `[rows]`: the largest score so far.
    largest: Vec<f32>,
    /// `[rows]`: the sum of weights so far.
    total: Vec<f32>,
    /// `[rows]`: what the next chunk scales earlier sums by.
    rescale: Vec<f32>,
    /// `[rows]`: positions of the chunk that each row sees.
    seen: Vec<Range<usize>>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Scratch {
    fn reset(&mut self, rows: usize, vectors: usize, head_dim: usize) {
        self.keys.resize(head_dim, PerPosition::default());
        self.values.resize(KV_BLOCK * vectors, Vector::default());
        self.weights.resize(rows, PerPosition::default());
        self.sums.clear();
        self.sums.resize(rows * vectors, Vector::default());
        self.largest.clear();
        self.largest.resize(rows, f32::NEG_INFINITY);
        self.total.clear();
        self.total.resize(rows, 0.0);
        self.rescale.resize(rows, 0.0);
        self.seen.resize(rows, 0..0);
    }
}

impl<E: Element> Kernel for Tile<'_, E> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let mut scratch = SCRATCH.take();
        let group = self.heads / self.kv_heads;
        let rows = self.positions.len() * group;
        let vectors = self.head_dim.div_ceil(LANES);
        scratch.reset(rows, vectors, self.head_dim);
        let Range { start, end } = self.visible();
        for chunk in start / KV_BLOCK..end.div_ceil(KV_BLOCK) {
            let first = chunk * KV_BLOCK;
            for (row, seen) in scratch.seen.iter_mut().enumerate() {
                let all = self.seen_by(row / group);
                let clip = |position: usize| position.clamp(first, first + KV_BLOCK) - first;
                *seen = clip(all.start)..clip(all.end);
            }
            let readable = KV_BLOCK.min(end - first);
            self.read_keys(l, self.blocks[chunk] as usize, readable, &mut scratch.keys);
            self.read_values(l, self.blocks[chunk] as usize, readable, &mut scratch.values);
            self.weigh(l, &mut scratch);
            accumulate_all(l, &mut scratch, vectors);
        }
        self.write(&scratch, vectors);
        SCRATCH.set(scratch);
    }
}

impl<E: Element> Tile<'_, E> {
    /// Positions that query `i` of the tile sees.
    #[inline(always)]
    fn seen_by(&self, i: usize) -> Range<usize> {
        let end = self.positions[i] as usize + 1;
        end.saturating_sub(self.params.window.unwrap_or(end))..end
    }

    /// Positions that any query of the tile sees.
    #[inline(always)]
    fn visible(&self) -> Range<usize> {
        let (mut start, mut end) = (usize::MAX, 0);
        for i in 0..self.positions.len() {
            let seen = self.seen_by(i);
            (start, end) = (start.min(seen.start), end.max(seen.end));
        }
        start..end
    }

    /// Where position `offset` of a block starts in the cache.
    #[inline(always)]
    fn element(&self, block: usize, offset: usize) -> usize {
        ((block * KV_BLOCK + offset) * self.kv_heads + self.kv_head) * self.head_dim
    }

    /// The block's keys with positions along the lanes; positions from `readable` on are zero.
    #[inline(always)]
    fn read_keys<L: Lanes>(&self, l: L, block: usize, readable: usize, keys: &mut [PerPosition]) {
        for half in 0..KV_BLOCK / LANES {
            for d in (0..self.head_dim).step_by(LANES) {
                let width = LANES.min(self.head_dim - d);
                let mut rows = [l.splat(0.0); LANES];
                for (i, row) in rows.iter_mut().enumerate() {
                    let offset = half * LANES + i;
                    if offset < readable {
                        let start = self.element(block, offset) + d;
                        *row = load_part(l, &self.k[start..start + width]);
                    }
                }
                let columns = l.transpose(rows);
                for (i, keys) in keys[d..d + width].iter_mut().enumerate() {
                    l.store(columns[i], &mut keys[half]);
                }
            }
        }
    }

    /// The block's values, padded to whole vectors.
    #[inline(always)]
    fn read_values<L: Lanes>(&self, l: L, block: usize, readable: usize, values: &mut [Vector]) {
        let vectors = self.head_dim.div_ceil(LANES);
        for (offset, row) in values.chunks_exact_mut(vectors).enumerate().take(readable) {
            let start = self.element(block, offset);
            let from = &self.v[start..start + self.head_dim];
            for (i, to) in row.iter_mut().enumerate() {
                let d = i * LANES;
                l.store(load_part(l, &from[d..from.len().min(d + LANES)]), to);
            }
        }
    }

    /// Scores of all rows against the chunk's keys, turned into softmax weights.
    #[inline(always)]
    fn weigh<L: Lanes>(&self, l: L, scratch: &mut Scratch) {
        let rows = scratch.weights.len();
        let mut row = 0;
        while row + 4 <= rows {
            let q =
                [self.query(row), self.query(row + 1), self.query(row + 2), self.query(row + 3)];
            let scores = products(l, q, &scratch.keys);
            for (i, scores) in scores.into_iter().enumerate() {
                self.softmax(l, scores, row + i, scratch);
            }
            row += 4;
        }
        while row < rows {
            let [scores] = products(l, [self.query(row)], &scratch.keys);
            self.softmax(l, scores, row, scratch);
            row += 1;
        }
    }

    #[inline(always)]
    fn query(&self, row: usize) -> &[f32] {
        let group = self.heads / self.kv_heads;
        let head = self.kv_head * group + row % group;
        let start = ((self.first_row + row / group) * self.heads + head) * self.head_dim;
        &self.q[start..start + self.head_dim]
    }

    /// One step of the online softmax: weights of the chunk's positions, and the factor for what
    /// was summed before.
    #[inline(always)]
    fn softmax<L: Lanes>(&self, l: L, scores: [L::V; 2], row: usize, scratch: &mut Scratch) {
        let seen = scratch.seen[row].clone();
        if seen.is_empty() {
            return;
        }
        let mut scores = [self.scaled(l, scores[0]), self.scaled(l, scores[1])];
        if seen.len() < KV_BLOCK {
            scores = masked(l, scores, &seen);
        }
        let before = scratch.largest[row];
        let here = l.largest(l.max(scores[0], scores[1]));
        let largest = if here > before { here } else { before };
        let largest_lanes = l.splat(largest);
        let weights = [
            math::exp(l, l.sub(scores[0], largest_lanes)),
            math::exp(l, l.sub(scores[1], largest_lanes)),
        ];
        let mut rescale = Vector::default();
        l.store(math::exp(l, l.splat(before - largest)), &mut rescale);
        scratch.rescale[row] = rescale[0];
        scratch.largest[row] = largest;
        scratch.total[row] = scratch.total[row] * rescale[0] + l.sum(l.add(weights[0], weights[1]));
        l.store(weights[0], &mut scratch.weights[row][0]);
        l.store(weights[1], &mut scratch.weights[row][1]);
    }

    #[inline(always)]
    fn scaled<L: Lanes>(&self, l: L, scores: L::V) -> L::V {
        let scores = l.mul(scores, l.splat(self.params.scale));
        match self.params.softcap {
            Some(cap) => l.mul(math::tanh(l, l.div(scores, l.splat(cap))), l.splat(cap)),
            None => scores,
        }
    }

    /// Sums over weights, to the output rows.
    #[inline(always)]
    fn write(&self, scratch: &Scratch, vectors: usize) {
        let group = self.heads / self.kv_heads;
        for (row, sums) in scratch.sums.chunks_exact(vectors).enumerate() {
            let head = self.kv_head * group + row % group;
            let start = ((self.first_row + row / group) * self.heads + head) * self.head_dim;
            // SAFETY: a query row and head belong to one tile; a part lives for one iteration.
            let out = unsafe { self.out.part(start..start + self.head_dim) };
            for (out, sum) in out.iter_mut().zip(sums.as_flattened()) {
                out.write(sum / scratch.total[row]);
            }
        }
    }
}

#[inline(always)]
fn load_part<L: Lanes, E: Element>(l: L, x: &[E]) -> L::V {
    match x.first_chunk::<LANES>() {
        Some(whole) => E::load(l, whole),
        None => load_tail(l, x),
    }
}

/// Scores outside of `seen` become minus infinity.
#[inline(always)]
fn masked<L: Lanes>(l: L, scores: [L::V; 2], seen: &Range<usize>) -> [L::V; 2] {
    let mut each = PerPosition::default();
    l.store(scores[0], &mut each[0]);
    l.store(scores[1], &mut each[1]);
    for (position, score) in each.as_flattened_mut().iter_mut().enumerate() {
        if !seen.contains(&position) {
            *score = f32::NEG_INFINITY;
        }
    }
    [l.load(&each[0]), l.load(&each[1])]
}

/// Products of `R` queries with the 32 keys, summed along the head in ascending order.
#[inline(always)]
fn products<L: Lanes, const R: usize>(
    l: L,
    q: [&[f32]; R],
    keys: &[PerPosition],
) -> [[L::V; 2]; R] {
    let mut acc = [[l.splat(0.0); 2]; R];
    let mut queries = q;
    for q in &mut queries {
        *q = &q[..keys.len()];
    }
    for (d, key) in keys.iter().enumerate() {
        let key = [l.load(&key[0]), l.load(&key[1])];
        for r in 0..R {
            let q = l.splat(queries[r][d]);
            acc[r] = [l.mul_add(q, key[0], acc[r][0]), l.mul_add(q, key[1], acc[r][1])];
        }
    }
    acc
}

/// Adds the chunk's weighted values to the sums of every row.
#[inline(always)]
fn accumulate_all<L: Lanes>(l: L, scratch: &mut Scratch, vectors: usize) {
    let Scratch { values, weights, sums, rescale, seen, .. } = scratch;
    let mut row = 0;
    while row < weights.len() {
        let same = seen.len() - row >= 4 && seen[row + 1..row + 4].iter().all(|s| *s == seen[row]);
        let rows = if same { 4 } else { 1 };
        let sums = &mut sums[row * vectors..(row + rows) * vectors];
        if seen[row].is_empty() {
            row += rows;
            continue;
        }
        let values = &values[seen[row].start * vectors..seen[row].end * vectors];
        if same {
            let weights: [&[f32]; 4] =
                std::array::from_fn(|i| &weights[row + i].as_flattened()[seen[row].clone()]);
            accumulate::<L, 4>(l, weights, &rescale[row..row + 4], values, sums, vectors);
        } else {
            let weights = [&weights[row].as_flattened()[seen[row].clone()]];
            accumulate::<L, 1>(l, weights, &rescale[row..=row], values, sums, vectors);
        }
        row += rows;
    }
}

/// `sums = sums * rescale + weights * values` for `R` rows that see the same positions.
#[inline(always)]
fn accumulate<L: Lanes, const R: usize>(
    l: L,
    weights: [&[f32]; R],
    rescale: &[f32],
    values: &[Vector],
    sums: &mut [Vector],
    vectors: usize,
) {
    let mut first = 0;
    while first < vectors {
        if first + 2 <= vectors {
            accumulate_columns::<L, R, 2>(l, weights, rescale, values, sums, vectors, first);
            first += 2;
        } else {
            accumulate_columns::<L, R, 1>(l, weights, rescale, values, sums, vectors, first);
            first += 1;
        }
    }
}

#[inline(always)]
fn accumulate_columns<L: Lanes, const R: usize, const C: usize>(
    l: L,
    weights: [&[f32]; R],
    rescale: &[f32],
    values: &[Vector],
    sums: &mut [Vector],
    vectors: usize,
    first: usize,
) {
    let mut acc = [[l.splat(0.0); C]; R];
    for r in 0..R {
        for c in 0..C {
            let sum = l.load(&sums[r * vectors + first + c]);
            acc[r][c] = l.mul(sum, l.splat(rescale[r]));
        }
    }
    for (position, row) in values.chunks_exact(vectors).enumerate() {
        let mut value = [l.splat(0.0); C];
        for c in 0..C {
            value[c] = l.load(&row[first + c]);
        }
        for r in 0..R {
            let weight = l.splat(weights[r][position]);
            for c in 0..C {
                acc[r][c] = l.mul_add(weight, value[c], acc[r][c]);
            }
        }
    }
    for r in 0..R {
        for c in 0..C {
            l.store(acc[r][c], &mut sums[r * vectors + first + c]);
        }
    }
}
