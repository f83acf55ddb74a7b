//! The choice of tokens by their own scores, on the CPU.

use std::ops::Range;

use candle_core::Result;
use float8::F8E4M3;
use half::{bf16, f16};

use super::args::{IndexKeys, IndexQueries, NAME, SelectedTokens};
use super::pools::Pools;
use super::queries::{Chooser, Query, best, chosen_rows};
use super::scoring::{Heads, StoredKeys, scores};
use crate::cache::KV_BLOCK;
use crate::cache::kv_element::{Stored, Vector};
use crate::cache::kv_format::KvFormat;
use crate::cpu::{Kernel, LANES, Level, Products};
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
        let Self { level, step, count, .. } = *self;
        let heads = Heads::of(self.queries)?;
        let rows = if let Some(pools) = self.keys.pools {
            let count = count / pools.size()?;
            chosen_rows(&Pools::of((level, heads), keys, pools, step, count)?, step)
        } else {
            chosen_rows(&Tokens { level, heads, keys, count }, step)
        };
        Ok(SelectedTokens::of_rows(rows))
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

    fn choose(&self, _: Query<'_>, scores: &[f32]) -> Vec<u32> {
        best(scores, self.count)
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
