//! What scores of tokens and of pools of them are made of on the CPU. The heads lie along the lanes, so that a score is
//! one chain of additions for each head and the sum of one vector: the same whatever else is computed.

use candle_core::Result;

use super::args::IndexQueries;
use crate::cache::KV_BLOCK;
use crate::cache::kv_element::Vector;
use crate::cpu::{LANES, Lanes};

/// The queries of all rows, with the heads along the lanes: those behind the last one are zeros and count
/// nothing.
pub(super) struct Heads {
    /// For each row and element a vector for each sixteen heads.
    queries: Vec<Vector>,
    /// For each row a vector for each sixteen heads.
    weights: Vec<Vector>,
    vectors: usize,
    dim: usize,
}

impl Heads {
    pub(super) fn of(given: IndexQueries<'_>) -> Result<Self> {
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

    /// Elements of a head.
    pub(super) fn dim(&self) -> usize {
        self.dim
    }

    /// A row's queries and weights.
    pub(super) fn of_row(&self, row: usize) -> [&[Vector]; 2] {
        let width = self.dim * self.vectors;
        [
            &self.queries[row * width..(row + 1) * width],
            &self.weights[row * self.vectors..(row + 1) * self.vectors],
        ]
    }
}

/// The values of a cache, behind which keys lie.
#[derive(Clone, Copy)]
pub(super) struct StoredKeys<'a, S> {
    pub(super) values: &'a [S],
    /// Stored elements of a value, with all that lies behind it.
    pub(super) width: usize,
    /// Stored elements before the key.
    pub(super) first: usize,
    /// Stored elements of the key.
    pub(super) len: usize,
}

impl<'a, S> StoredKeys<'a, S> {
    /// The key of the token at `position`.
    #[inline(always)]
    pub(super) fn key(&self, blocks: &[u32], position: usize) -> &'a [S] {
        self.part(blocks, position, self.first)
    }

    /// The gates behind that key, which are as many as its elements.
    #[inline(always)]
    pub(super) fn gates(&self, blocks: &[u32], position: usize) -> &'a [S] {
        self.part(blocks, position, self.first + self.len)
    }

    #[inline(always)]
    fn part(&self, blocks: &[u32], position: usize, first: usize) -> &'a [S] {
        let slot = blocks[position / KV_BLOCK] as usize * KV_BLOCK + position % KV_BLOCK;
        &self.values[slot * self.width + first..][..self.len]
    }
}

/// `sum_h weight_h * relu(query_h . key)` of `N` keys, `stride` floats apart.
#[inline(always)]
pub(super) fn scores<L: Lanes, const N: usize>(
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
