//! Attention whose queries see chosen positions: their keys and values are gathered to blocks of their own, and
//! what wasn't chosen is never read. A query's result depends on its choice alone, since it has gathered blocks
//! of its own.

use candle_core::{Result, Tensor, bail};
use float8::F8E4M3;
use half::{bf16, f16};

use crate::cache::KV_BLOCK;
use crate::cache::kv_element::Stored;
use crate::cache::kv_format::{CacheShape, GROUP, KvFormat};
use crate::fresh::Parts;
use crate::indexer::{SelectedTokens, selects_on};
use crate::paged_attention::{AttentionParams, PerHead, paged_attention};
use crate::pool;
use crate::step::Step;
use crate::storage::read;

pub use self::blocks::paged_attention_blocks;
use self::rows::{in_order, index, seeing_all, select_rows};

mod blocks;
mod rows;
#[cfg(test)]
mod tests;

const NAME: &str = "paged_attention_chosen";

/// Bytes that are gathered at once, unless a single query has more.
const MOST_BYTES: usize = 32 << 20;

/// As [`paged_attention`] over a cache with one head, with queries that see `chosen` positions, and with the
/// first `value_dim` elements of values alone: `[T, H, value_dim]` in f32.
///
/// # Errors
///
/// Shapes that don't fit, a choice of another step or of no positions, a window or a chunk, a device without
/// kernels for a choice.
pub fn paged_attention_chosen(
    q: &Tensor,
    [k, v]: [&Tensor; 2],
    step: &Step,
    params: AttentionParams,
    per_head: PerHead<'_>,
    (chosen, value_dim): (&SelectedTokens, usize),
) -> Result<Tensor> {
    let (rows, _, key_dim) = q.dims3()?;
    let shape = CacheShape::of(k, v, key_dim)?;
    step.check_attention(rows, shape.num_blocks, false)?;
    let group = if shape.format == KvFormat::Q8_0 { GROUP } else { 1 };
    if shape.kv_heads != 1 || value_dim > shape.value_dim || !value_dim.is_multiple_of(group) {
        let CacheShape { kv_heads, value_dim: stored, .. } = shape;
        bail!("{NAME}: {value_dim} elements of values of {kv_heads} heads with {stored} elements");
    }
    if !chosen.rows().iter().any(Option::is_some) {
        let all = paged_attention(q, k, v, step, params, per_head)?;
        return all.narrow(2, 0, value_dim);
    }
    if chosen.rows().len() != rows || params.window.is_some() || params.chunk.is_some() {
        bail!("{NAME}: a choice for {} queries, there are {rows}", chosen.rows().len());
    }
    if !selects_on(q.device()) {
        bail!(
            "{NAME}: chosen positions are gathered on the CPU alone, there is no kernel for GPUs"
        );
    }
    let whole = Gathering { q, k, v, step, params, per_head, shape, key_dim, value_dim };
    whole.run(chosen.rows())
}

/// A query and the positions that it sees.
struct Query<'a> {
    row: u32,
    positions: &'a [u32],
    blocks: &'a [u32],
}

struct Gathering<'a> {
    q: &'a Tensor,
    k: &'a Tensor,
    v: &'a Tensor,
    step: &'a Step,
    params: AttentionParams,
    per_head: PerHead<'a>,
    shape: CacheShape,
    key_dim: usize,
    value_dim: usize,
}

impl Gathering<'_> {
    fn run(&self, chosen: &[Option<Vec<u32>>]) -> Result<Tensor> {
        let (mut outputs, mut order) = (Vec::new(), Vec::new());
        let (step, rows) = seeing_all(self.step, chosen)?;
        if !rows.is_empty() {
            let q = select_rows(self.q, &rows)?;
            let all = paged_attention(&q, self.k, self.v, &step, self.params, self.per_head)?;
            outputs.push(all.narrow(2, 0, self.value_dim)?.contiguous()?);
            order.extend(rows);
        }
        let queries = self.queries(chosen)?;
        let mut done = 0;
        while done < queries.len() {
            let mut bytes = 0;
            let fits = |query: &&Query<'_>| {
                bytes += self.bytes(query.positions.len());
                bytes <= MOST_BYTES
            };
            let some = queries[done..].iter().take_while(fits).count().max(1);
            let some = &queries[done..done + some];
            done += some.len();
            outputs.push(match self.shape.format {
                KvFormat::F32 => self.gathered::<f32>(some),
                KvFormat::F16 => self.gathered::<f16>(some),
                KvFormat::Bf16 => self.gathered::<bf16>(some),
                KvFormat::Fp8 => self.gathered::<F8E4M3>(some),
                KvFormat::Q8_0 => self.gathered::<u8>(some),
            }?);
            order.extend(some.iter().map(|query| query.row));
        }
        in_order(&outputs, &order, self.q.device())
    }

    /// The other rows, with positions that were checked.
    fn queries<'a>(&'a self, chosen: &'a [Option<Vec<u32>>]) -> Result<Vec<Query<'a>>> {
        let mut queries = Vec::new();
        for seq in 0..self.step.context_lens.len() {
            let blocks = &self.step.block_tables[seq][..];
            for row in self.step.rows(seq) {
                let Some(positions) = &chosen[row] else { continue };
                let own = self.step.positions[row];
                let seen = positions.last().is_some_and(|last| *last <= own);
                if !seen || !positions.is_sorted_by(|a, b| a < b) {
                    bail!("{NAME}: the query at {own} sees {} positions up to it", positions.len());
                }
                queries.push(Query { row: index(row)?, positions, blocks });
            }
        }
        Ok(queries)
    }

    /// Bytes of so many gathered positions.
    fn bytes(&self, positions: usize) -> usize {
        let format = self.shape.format;
        let each = format.head_bytes(self.key_dim) + format.head_bytes(self.value_dim);
        positions.next_multiple_of(KV_BLOCK) * each
    }

    /// What some queries give, `[queries, H, value_dim]`.
    fn gathered<S: Stored>(&self, queries: &[Query<'_>]) -> Result<Tensor> {
        let format = self.shape.format;
        let [stored_k, stored_v] = [self.k, self.v].map(|tensor| read(NAME, tensor));
        let cache = Cache {
            keys: stored_k.contiguous::<S>()?,
            values: stored_v.contiguous::<S>()?,
            key_block: self.shape.key_block(),
            value: self.shape.value_block() / KV_BLOCK,
            gathered_value: format.head_len(self.value_dim),
        };
        let mut step = Step { cu_seqlens_q: vec![0], ..Step::default() };
        // Of each query the first of its blocks.
        let mut firsts = Vec::new();
        let mut blocks = 0;
        for query in queries {
            let (count, own) =
                (index(query.positions.len())?, query.positions.len().div_ceil(KV_BLOCK));
            firsts.push(blocks);
            step.positions.push(count - 1);
            step.context_lens.push(count);
            step.block_tables.push((index(blocks)?..index(blocks + own)?).collect());
            step.cu_seqlens_q.push(index(step.positions.len())?);
            blocks += own;
        }
        let zero = S::from_f64(0.0);
        let (value_block, key_block) = (cache.gathered_value * KV_BLOCK, cache.key_block);
        let mut keys = vec![zero; blocks * key_block];
        let mut values = vec![zero; blocks * value_block];
        let (key_parts, value_parts) = (&Parts::new(&mut keys), &Parts::new(&mut values));
        pool::for_each_chunk(queries.len(), |chunk| {
            let query = &queries[chunk];
            let first = firsts[chunk];
            let end = first + query.positions.len().div_ceil(KV_BLOCK);
            // SAFETY: each query has blocks of its own.
            let (keys, values) = unsafe {
                (
                    key_parts.part(first * key_block..end * key_block),
                    value_parts.part(first * value_block..end * value_block),
                )
            };
            cache.gather(query, keys, values);
        });
        let device = self.q.device();
        let k = Tensor::from_vec(keys, &format.key_dims(blocks, 1, self.key_dim), device)?;
        let v = Tensor::from_vec(values, &format.value_dims(blocks, 1, self.value_dim), device)?;
        let rows: Vec<u32> = queries.iter().map(|query| query.row).collect();
        let q = select_rows(self.q, &rows)?;
        paged_attention(&q, &k, &v, &step, self.params, self.per_head)
    }
}

/// The cache that is gathered from.
struct Cache<'a, S> {
    keys: &'a [S],
    values: &'a [S],
    /// Stored elements of a block's keys.
    key_block: usize,
    /// Stored elements of a value, and of the part of it that is gathered.
    value: usize,
    gathered_value: usize,
}

impl<S: Stored> Cache<'_, S> {
    /// Copies what a query sees, one position behind the other.
    fn gather(&self, query: &Query<'_>, keys: &mut [S], values: &mut [S]) {
        let to = keys.chunks_exact_mut(self.key_block);
        for (positions, keys) in query.positions.chunks(KV_BLOCK).zip(to) {
            for (offset, position) in positions.iter().enumerate() {
                let slot = query.slot(*position);
                let from = slot / KV_BLOCK * self.key_block;
                let from = &self.keys[from..from + self.key_block];
                S::copy_key(from, slot % KV_BLOCK, keys, offset);
            }
        }
        for (position, to) in
            query.positions.iter().zip(values.chunks_exact_mut(self.gathered_value))
        {
            let first = query.slot(*position) * self.value;
            to.copy_from_slice(&self.values[first..first + self.gathered_value]);
        }
    }
}

impl Query<'_> {
    fn slot(&self, position: u32) -> usize {
        let (block, offset) = (position as usize / KV_BLOCK, position as usize % KV_BLOCK);
        self.blocks[block] as usize * KV_BLOCK + offset
    }
}
