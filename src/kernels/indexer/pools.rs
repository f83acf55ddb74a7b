//! Sparse attention by pools of tokens: a query sees the whole pools of its context with the largest scores, and the
//! tokens behind the last whole one.
//!
//! Zhipu AI, "GLM-5.3-Flash", 2026. The key of a pool is a mean of its tokens' keys: each element is weighted by the
//! softmax over the pool of the tokens' gates plus an offset for each place. A pool's key depends on its tokens alone,
//! and is made once for all queries of a step.

use std::ops::Range;

use candle_core::Result;

use super::args::KeyPools;
use super::queries::{Chooser, Query, best};
use super::scoring::{Heads, StoredKeys, scores};
use crate::cache::kv_element::{Stored, Vector};
use crate::cpu::math::exp_of_negative;
use crate::cpu::{Kernel, LANES, Level, Products};
use crate::fresh::Parts;
use crate::pool;
use crate::step::Step;

/// Pools whose keys are made together, and pools whose scores are.
const POOLS: usize = 8;
const TILE: usize = 4;

/// What chooses pools.
pub(super) struct Pools {
    level: Level,
    heads: Heads,
    /// Of each sequence the keys of its whole pools, filled up to whole vectors; none where all queries see all pools.
    keys: Vec<Vec<Vector>>,
    /// Tokens of a pool.
    size: usize,
    /// Pools that are seen.
    count: usize,
}

impl Pools {
    /// Makes the keys of all sequences with a query that doesn't see all of its whole pools.
    pub(super) fn of<S: Stored>(
        (level, heads): (Level, Heads),
        keys: StoredKeys<'_, S>,
        pools: KeyPools<'_>,
        step: &Step,
        count: usize,
    ) -> Result<Self> {
        let size = pools.size()?;
        let offsets = pools.offsets.flatten_all()?.to_vec1::<f32>()?;
        let of_sequence = |seq: usize| {
            let last = step.rows(seq).map(|row| step.positions[row] as usize + 1).max();
            let pools = last.unwrap_or(0) / size;
            let blocks = &step.block_tables[seq][..];
            let made = Made { keys, blocks, offsets: &offsets, size, dim: heads.dim() };
            if pools > count { made.keys(level, pools) } else { Vec::new() }
        };
        let keys = (0..step.context_lens.len()).map(of_sequence).collect();
        Ok(Self { level, heads, keys, size, count })
    }
}

impl Chooser for Pools {
    /// The tokens, ascending.
    type Chosen = Vec<u32>;

    const RUN: usize = 512;

    /// One of all heads together.
    fn heads(&self) -> usize {
        1
    }

    fn parts(&self, seen: usize) -> usize {
        seen / self.size
    }

    fn count(&self) -> usize {
        self.count
    }

    fn score(&self, query: Query<'_>, pools: Range<usize>, out: &mut [f32]) {
        let padded = self.heads.dim().div_ceil(LANES);
        let keys = &self.keys[query.sequence][pools.start * padded..pools.end * padded];
        let [query, weights] = self.heads.of_row(query.row);
        self.level.run(Scores { query, weights, keys: keys.as_flattened(), out });
    }

    fn choose(&self, query: Query<'_>, scores: &[f32]) -> Vec<u32> {
        let size = self.size;
        let pools = best(scores, self.count).into_iter().map(|pool| pool as usize * size);
        let tokens = pools.flat_map(|first| first..first + size);
        let behind = scores.len() * size..query.seen;
        tokens.chain(behind).filter_map(|position| u32::try_from(position).ok()).collect()
    }
}

/// The scores that one query gives to some pools.
struct Scores<'a> {
    query: &'a [Vector],
    weights: &'a [Vector],
    /// Of each pool.
    keys: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Scores<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { query, weights, keys, out } = self;
        let stride = keys.len() / out.len().max(1);
        let (tiles, rest) = out.as_chunks_mut::<TILE>();
        for (tile, keys) in tiles.iter_mut().zip(keys.chunks_exact(TILE * stride)) {
            *tile = scores(l, query, weights, keys, stride);
        }
        let done = tiles.len() * TILE;
        for (one, keys) in rest.iter_mut().zip(keys[done * stride..].chunks_exact(stride)) {
            [*one] = scores(l, query, weights, keys, stride);
        }
    }
}

/// What keys of one sequence's pools are made of.
#[derive(Clone, Copy)]
struct Made<'a, S> {
    keys: StoredKeys<'a, S>,
    blocks: &'a [u32],
    /// `[size, dim]`
    offsets: &'a [f32],
    size: usize,
    dim: usize,
}

impl<S: Stored> Made<'_, S> {
    /// Those of the first so many pools.
    fn keys(&self, level: Level, pools: usize) -> Vec<Vector> {
        let padded = self.dim.div_ceil(LANES);
        let mut keys = vec![Vector::default(); pools * padded];
        let parts = &Parts::new(&mut keys);
        pool::for_each_chunk(pools.div_ceil(POOLS), |chunk| {
            let own = chunk * POOLS..pools.min((chunk + 1) * POOLS);
            // SAFETY: chunks have pools of their own.
            let out = unsafe { parts.part(own.start * padded..own.end * padded) };
            level.run(Means { made: *self, first: own.start, out });
        });
        keys
    }
}

/// The keys of some pools from `first` on.
struct Means<'a, S> {
    made: Made<'a, S>,
    first: usize,
    out: &'a mut [Vector],
}

impl<S: Stored> Kernel for Means<'_, S> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Made { keys, blocks, offsets, size, dim } = self.made;
        let padded = dim.div_ceil(LANES);
        let mut read = vec![Vector::default(); 2 * size * padded];
        let (own, gates) = read.split_at_mut(size * padded);
        for (pool, out) in self.out.chunks_exact_mut(padded).enumerate() {
            for place in 0..size {
                let position = (self.first + pool) * size + place;
                let to = place * padded..(place + 1) * padded;
                S::read_value(l, keys.key(blocks, position), dim, 0, &mut own[to.clone()]);
                let gates = &mut gates[to];
                S::read_value(l, keys.gates(blocks, position), dim, 0, gates);
                let offsets = &offsets[place * dim..(place + 1) * dim];
                for (gate, offset) in gates.as_flattened_mut().iter_mut().zip(offsets) {
                    *gate += offset;
                }
            }
            for (vector, out) in out.iter_mut().enumerate() {
                let places = || (vector..size * padded).step_by(padded);
                let largest = places().fold(l.splat(f32::NEG_INFINITY), |largest, at| {
                    l.max(largest, l.load(&gates[at]))
                });
                let (mut sum, mut weighted) = (l.splat(0.0), l.splat(0.0));
                for at in places() {
                    let weight = exp_of_negative(l, l.sub(l.load(&gates[at]), largest));
                    sum = l.add(sum, weight);
                    weighted = l.mul_add(weight, l.load(&own[at]), weighted);
                }
                l.store(l.div(weighted, sum), out);
            }
        }
    }
}
