//! Scores of tokens on the CPU. The heads lie along the lanes, so that a score is one chain of additions for each
//! head and the sum of one vector: the same whatever else is computed.

use std::ops::Range;

use candle_core::Result;
use float8::F8E4M3;
use half::{bf16, f16};

use super::args::{IndexKeys, IndexQueries, NAME, SelectedTokens};
use super::queries::{Chooser, Query, best, chosen_rows};
use crate::cache::KV_BLOCK;
use crate::cache::kv_element::{Stored, Vector};
use crate::cache::kv_format::KvFormat;
use crate::cpu::{Kernel, LANES, Lanes, Level, Products};
use crate::step::Step;
use crate::storage::read;

/// Tokens whose scores are computed together.
const TILE: usize = 4;

/// Selects with checked arguments.
pub(super) fn select(
    level: Level,
    queries: IndexQueries<'_>,
    keys: IndexKeys<'_>,
    format: KvFormat,
    step: &Step,
    count: usize,
) -> Result<SelectedTokens> {
    let call = Call { level, queries, keys, format, step, count };
    match format {
        KvFormat::F32 => call.run::<f32>(),
        KvFormat::F16 => call.run::<f16>(),
        KvFormat::Bf16 => call.run::<bf16>(),
        KvFormat::Fp8 => call.run::<F8E4M3>(),
        KvFormat::Q8_0 => call.run::<u8>(),
    }
}

struct Call<'a> {
    level: Level,
    queries: IndexQueries<'a>,
    keys: IndexKeys<'a>,
    format: KvFormat,
    step: &'a Step,
    count: usize,
}

impl Call<'_> {
    fn run<S: Stored>(&self) -> Result<SelectedTokens> {
        let values = read(NAME, self.keys.values);
        let keys = StoredKeys {
            values: values.contiguous::<S>()?,
            width: self.format.head_len(self.width()?),
            first: self.format.head_len(self.keys.first),
            len: self.format.head_len(self.keys.dim),
        };
        let heads = Heads::of(self.queries)?;
        let tokens = Tokens { level: self.level, heads, keys, count: self.count };
        Ok(SelectedTokens::of_rows(chosen_rows(&tokens, self.step)))
    }

    /// Elements of a value, with the key behind it.
    fn width(&self) -> Result<usize> {
        let (_, _, _, stored) = self.keys.values.dims4()?;
        Ok(self.format.head_dim(stored))
    }
}

/// What chooses tokens.
struct Tokens<'a, S> {
    level: Level,
    heads: Heads,
    keys: StoredKeys<'a, S>,
    count: usize,
}

impl<S: Stored> Chooser for Tokens<'_, S> {
    type Chosen = Vec<u32>;

    /// Whole blocks.
    const RUN: usize = 16 * KV_BLOCK;

    /// One of all heads together.
    fn heads(&self) -> usize {
        1
    }

    fn parts(&self, seen: usize) -> usize {
        seen
    }

    fn count(&self) -> usize {
        self.count
    }

    fn score(&self, query: Query<'_>, tokens: Range<usize>, out: &mut [f32]) {
        let Query { row, table: blocks, .. } = query;
        let [query, weights] = self.heads.of_row(row);
        self.level.run(Scores { query, weights, keys: self.keys, blocks, tokens, out });
    }

    fn choose(&self, scores: &[f32]) -> Vec<u32> {
        best(scores, self.count)
    }
}

/// The queries of all rows, with the heads along the lanes: those behind the last one are zeros and count
/// nothing.
struct Heads {
    /// For each row and element a vector for each sixteen heads.
    queries: Vec<Vector>,
    /// For each row a vector for each sixteen heads.
    weights: Vec<Vector>,
    vectors: usize,
    dim: usize,
}

impl Heads {
    fn of(given: IndexQueries<'_>) -> Result<Self> {
        let (rows, heads, dim) = given.queries.dims3()?;
        let vectors = heads.div_ceil(LANES);
        let mut queries = vec![Vector::default(); rows * dim * vectors];
        let mut weights = vec![Vector::default(); rows * vectors];
        let elements = given.queries.flatten_all()?.to_vec1::<f32>()?;
        let factors = given.weights.flatten_all()?.to_vec1::<f32>()?;
        for row in 0..rows {
            for head in 0..heads {
                let (vector, lane) = (head / LANES, head % LANES);
                weights[row * vectors + vector][lane] = factors[row * heads + head];
                let query = &elements[(row * heads + head) * dim..][..dim];
                for (element, x) in query.iter().enumerate() {
                    queries[(row * dim + element) * vectors + vector][lane] = *x;
                }
            }
        }
        Ok(Self { queries, weights, vectors, dim })
    }

    /// A row's queries and weights.
    fn of_row(&self, row: usize) -> [&[Vector]; 2] {
        let width = self.dim * self.vectors;
        [
            &self.queries[row * width..(row + 1) * width],
            &self.weights[row * self.vectors..(row + 1) * self.vectors],
        ]
    }
}

/// The values of a cache, behind which keys lie.
#[derive(Clone, Copy)]
struct StoredKeys<'a, S> {
    values: &'a [S],
    /// Stored elements of a value, with the key.
    width: usize,
    /// Stored elements before the key.
    first: usize,
    /// Stored elements of the key.
    len: usize,
}

impl<'a, S> StoredKeys<'a, S> {
    /// The key of the token at `position`.
    #[inline(always)]
    fn key(&self, blocks: &[u32], position: usize) -> &'a [S] {
        let slot = blocks[position / KV_BLOCK] as usize * KV_BLOCK + position % KV_BLOCK;
        &self.values[slot * self.width + self.first..][..self.len]
    }
}

/// The scores that one query gives to some tokens.
struct Scores<'a, S> {
    /// `[dim, vectors]`
    query: &'a [Vector],
    /// `[vectors]`
    weights: &'a [Vector],
    keys: StoredKeys<'a, S>,
    blocks: &'a [u32],
    tokens: Range<usize>,
    out: &'a mut [f32],
}

impl<S: Stored> Kernel for Scores<'_, S> {
    #[inline(always)]
    fn run<L: Products>(self, l: L) {
        let Self { query, weights, keys, blocks, tokens, out } = self;
        let dim = query.len() / weights.len();
        let padded = dim.div_ceil(LANES);
        let mut read = vec![Vector::default(); TILE * padded];
        for (tile, out) in out.chunks_mut(TILE).enumerate() {
            let first = tokens.start + tile * TILE;
            for (token, to) in read.chunks_exact_mut(padded).take(out.len()).enumerate() {
                S::read_value(l, keys.key(blocks, first + token), dim, 0, to);
            }
            let read = read.as_flattened();
            if let Ok(whole) = <&mut [f32; TILE]>::try_from(&mut *out) {
                *whole = scores(l, query, weights, read, padded * LANES);
                continue;
            }
            for (token, out) in out.iter_mut().enumerate() {
                let own = &read[token * padded * LANES..];
                [*out] = scores(l, query, weights, own, padded * LANES);
            }
        }
    }
}

/// `sum_h weight_h * relu(query_h . key)` of `N` keys, `stride` floats apart.
#[inline(always)]
fn scores<L: Lanes, const N: usize>(
    l: L,
    query: &[Vector],
    weights: &[Vector],
    keys: &[f32],
    stride: usize,
) -> [f32; N] {
    let zero = l.splat(0.0);
    let mut sums = [zero; N];
    for (vector, weight) in weights.iter().enumerate() {
        let mut products = [zero; N];
        let elements = query[vector..].iter().step_by(weights.len());
        for (element, query) in elements.enumerate() {
            let query = l.load(query);
            for (token, product) in products.iter_mut().enumerate() {
                *product = l.mul_add(l.splat(keys[token * stride + element]), query, *product);
            }
        }
        let weight = l.load(weight);
        for (sum, product) in sums.iter_mut().zip(products) {
            *sum = l.mul_add(weight, l.max(product, zero), *sum);
        }
    }
    let mut scores = [0.0; N];
    for (score, sum) in scores.iter_mut().zip(sums) {
        *score = l.sum(sum);
    }
    scores
}
