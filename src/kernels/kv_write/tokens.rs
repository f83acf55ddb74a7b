//! The pass over the tokens: which thread takes which, and what happens to one.

use std::mem::MaybeUninit;
use std::ops::Range;

use candle_core::Result;

use super::args::{KvCache, NAME};
use crate::cache::KV_BLOCK;
use crate::cache::kv_element::Stored;
use crate::cache::kv_format::CacheShape;
use crate::cpu::{Kernel, LANES, Level, Products};
use crate::fresh::{Parts, filled};
use crate::norm::cpu::NormRows;
use crate::pool;
use crate::rope::cpu::rotate;
use crate::storage::{self, Rows};

/// Fewer elements than this stay on the calling thread.
const PARALLEL_FROM: usize = 1 << 15;
/// Tokens of a chunk, at least.
const CHUNK_TOKENS: usize = 16;

/// Cosines and sines, and the weights of the head norms.
#[derive(Clone, Copy)]
pub(super) struct Angles<'a> {
    pub(super) cos: Rows<'a>,
    pub(super) sin: Rows<'a>,
    /// Norms of queries and keys.
    pub(super) norms: Option<(Norm<'a>, Norm<'a>)>,
}

/// The norm of a head.
#[derive(Clone, Copy)]
pub(super) struct Norm<'a> {
    /// As long as a head.
    pub(super) weight: &'a [f32],
    pub(super) eps: f32,
    pub(super) after_rotation: bool,
}

/// All tokens of a call; slots are inside of the cache and rows have the cache's shape.
pub(super) struct Tokens<'a> {
    pub(super) level: Level,
    pub(super) q: Rows<'a>,
    pub(super) k: Rows<'a>,
    pub(super) v: Rows<'a>,
    pub(super) angles: Angles<'a>,
    pub(super) heads: usize,
    pub(super) shape: CacheShape,
    pub(super) slots: &'a [u32],
}

impl Tokens<'_> {
    /// Writes to the cache and returns the queries.
    pub(super) fn apply<S: Stored>(&self, cache: KvCache<'_>) -> Result<Vec<f32>> {
        let mut queries = Vec::new();
        storage::write::<S>(NAME, cache.k, |keys| {
            storage::write::<S>(NAME, cache.v, |values| {
                queries = self.run(keys, values);
                Ok(())
            })
        })?;
        Ok(queries)
    }

    fn run<S: Stored>(&self, keys: &mut [S], values: &mut [S]) -> Vec<f32> {
        let width = self.heads * self.shape.key_dim;
        let (keys, values) = (&Parts::new(keys), &Parts::new(values));
        let run = |out: &Parts<'_, MaybeUninit<f32>>| {
            let chunk = |range: Range<usize>| {
                // SAFETY: chunks have no token in common.
                let out = unsafe { out.part(range.start * width..range.end * width) };
                self.level.run(Chunk { tokens: self, range, keys, values, out });
            };
            match self.chunks() {
                Some(chunks) => {
                    pool::for_each_chunk(chunks.len(), |i| chunk(chunks[i].clone()));
                }
                None => chunk(0..self.slots.len()),
            }
        };
        // SAFETY: the chunks cover all tokens and each writes the queries of its own.
        unsafe { filled(self.slots.len() * width, run) }
    }

    /// Ranges of tokens that can be taken by different threads, since no two write to one block;
    /// `None` if there is too little to share out, or no such ranges.
    fn chunks(&self) -> Option<Vec<Range<usize>>> {
        let heads = self.heads + 2 * self.shape.kv_heads;
        if self.slots.len() * heads * self.shape.key_dim < PARALLEL_FROM {
            return None;
        }
        let block = |token: usize| self.slots[token] as usize / KV_BLOCK;
        let mut blocks: Vec<usize> = Vec::new();
        let mut chunks: Vec<Range<usize>> = Vec::new();
        for token in 0..self.slots.len() {
            let same = blocks.last() == Some(&block(token));
            if !same {
                blocks.push(block(token));
            }
            match chunks.last_mut() {
                Some(chunk) if same || chunk.len() < CHUNK_TOKENS => chunk.end = token + 1,
                _ => chunks.push(token..token + 1),
            }
        }
        blocks.sort_unstable();
        blocks.is_sorted_by(|a, b| a < b).then_some(chunks)
    }
}

/// Queries that come without keys.
pub(super) struct Queries<'a> {
    pub(super) level: Level,
    pub(super) q: Rows<'a>,
    pub(super) angles: Angles<'a>,
    pub(super) heads: usize,
    pub(super) head_dim: usize,
}

impl Queries<'_> {
    /// All heads of `tokens` tokens.
    pub(super) fn run(&self, tokens: usize) -> Vec<f32> {
        let width = self.heads * self.head_dim;
        let run = |out: &Parts<'_, MaybeUninit<f32>>| {
            let some = |range: Range<usize>| {
                // SAFETY: ranges have no token in common.
                let out = unsafe { out.part(range.start * width..range.end * width) };
                self.level.run(SomeQueries { queries: self, range, out });
            };
            if tokens * width < PARALLEL_FROM {
                some(0..tokens);
                return;
            }
            pool::for_each_chunk(tokens.div_ceil(CHUNK_TOKENS), |chunk| {
                some(chunk * CHUNK_TOKENS..tokens.min((chunk + 1) * CHUNK_TOKENS));
            });
        };
        // SAFETY: the ranges cover all tokens and each writes the queries of its own.
        unsafe { filled(tokens * width, run) }
    }
}

/// A chunk of the tokens, queries alone.
struct SomeQueries<'a> {
    queries: &'a Queries<'a>,
    range: Range<usize>,
    /// Queries of `range`.
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for SomeQueries<'_> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Queries { q, angles, heads, head_dim, .. } = *self.queries;
        let norm = angles.norms.map(|(query, _)| query);
        let mut rotated = Vec::new();
        for (token, out) in self.range.zip(self.out.chunks_exact_mut(heads * head_dim)) {
            let angles = (angles.cos.row(token), angles.sin.row(token));
            let heads = q.row(token).chunks_exact(head_dim);
            for (from, to) in heads.zip(out.chunks_exact_mut(head_dim)) {
                prepare(l, from, norm, angles, &mut rotated, to);
            }
        }
    }
}

/// A chunk of the tokens.
struct Chunk<'a, S> {
    tokens: &'a Tokens<'a>,
    range: Range<usize>,
    /// The whole cache; chunks that run at the same time have no block in common.
    keys: &'a Parts<'a, S>,
    values: &'a Parts<'a, S>,
    /// Queries of `range`.
    out: &'a mut [MaybeUninit<f32>],
}

impl<S: Stored> Kernel for Chunk<'_, S> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Tokens { heads, shape, angles, .. } = *self.tokens;
        let (dim, value_dim) = (shape.key_dim, shape.value_dim);
        // The key and the value at hand, zeros behind them up to whole vectors.
        let zeros = |dim: usize| vec![MaybeUninit::new(0.0f32); dim.next_multiple_of(LANES)];
        let (mut head, mut value) = (zeros(dim), zeros(value_dim));
        let (query_norm, key_norm) = angles.norms.unzip();
        let mut rotated = Vec::new();
        let outs = self.out.chunks_exact_mut(heads * dim);
        for (token, out) in self.range.zip(outs) {
            let (cos, sin) = (angles.cos.row(token), angles.sin.row(token));
            let q = self.tokens.q.row(token).chunks_exact(dim);
            for (from, to) in q.zip(out.chunks_exact_mut(dim)) {
                prepare(l, from, query_norm, (cos, sin), &mut rotated, to);
            }
            let slot = self.tokens.slots[token] as usize;
            let (block, offset) = (slot / KV_BLOCK, slot % KV_BLOCK);
            let k = self.tokens.k.row(token).chunks_exact(dim);
            let v = self.tokens.v.row(token).chunks_exact(value_dim);
            for (i, (k, v)) in k.zip(v).enumerate() {
                let stored = block * shape.kv_heads + i;
                let part = |len: usize| stored * len..(stored + 1) * len;
                let (key_part, value_part) = (part(shape.key_block()), part(shape.value_block()));
                // SAFETY: no other chunk writes to this block, and the parts of the head before
                // are out of use.
                let (keys, values) =
                    unsafe { (self.keys.part(key_part), self.values.part(value_part)) };
                prepare(l, k, key_norm, (cos, sin), &mut rotated, &mut head[..dim]);
                // SAFETY: the head was just written and the rest is zero from the start.
                let padded = unsafe { head.assume_init_ref() }.as_chunks().0;
                S::write_key(l, padded, dim, offset, keys);
                value[..value_dim].write_copy_of_slice(v);
                // SAFETY: as above.
                let padded = unsafe { value.assume_init_ref() }.as_chunks().0;
                S::write_value(l, padded, value_dim, offset, values);
            }
        }
    }
}

/// Writes `from`, rotated and, if there is a norm, normalized, to `to`. `rotated` is scratch
/// memory.
#[inline(always)]
fn prepare<L: Products>(
    l: L,
    from: &[f32],
    norm: Option<Norm<'_>>,
    (cos, sin): (&[f32], &[f32]),
    rotated: &mut Vec<f32>,
    to: &mut [MaybeUninit<f32>],
) {
    match norm {
        None => rotate(l, to.write_copy_of_slice(from), cos, sin),
        Some(Norm { weight, eps, after_rotation: false }) => {
            NormRows { x: from, weight, eps, residual: None, out: &mut *to }.run(l);
            // SAFETY: the kernel has written every element.
            rotate(l, unsafe { to.assume_init_mut() }, cos, sin);
        }
        Some(Norm { weight, eps, after_rotation: true }) => {
            rotated.clear();
            rotated.extend_from_slice(from);
            rotate(l, rotated, cos, sin);
            NormRows { x: rotated, weight, eps, residual: None, out: to }.run(l);
        }
    }
}
