//! Attention over the paged KV cache, for any mix of prefill chunks and single tokens.
//!
//! A query sees the positions up to its own, or the last `window` of them. Softmax runs online
//! (Milakov and Gimelshein, 2018) over chunks of 32 positions that start at multiples of 32,
//! whatever chunk of the prompt the query came in with; inside a chunk, positions are summed in
//! ascending order. So a query's result is the same to the bit however its sequence was cut and
//! whatever else is in the batch. The cache layout is that of Kwon et al., "Efficient Memory
//! Management for Large Language Model Serving with PagedAttention", 2023.

use candle_core::{CpuStorage, CustomOp3, DType, Layout, Result, Shape, Tensor, bail};
use half::{bf16, f16};

use super::cpu::{Element, Level};
use super::fresh::filled;
use super::{KV_BLOCK, pool, portable, storage};

mod tile;

/// What all queries of one call share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionParams {
    /// Factor of the scores, commonly `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// `cap * tanh(score / cap)` on scaled scores.
    pub softcap: Option<f32>,
    /// A query sees this many positions, its own included; at least 1.
    pub window: Option<usize>,
}

/// Which rows belong to which sequence, and where its keys and values are.
#[derive(Clone, Copy, Debug)]
pub struct Ragged<'a> {
    /// `[num_tokens]`: position of each query row in its sequence.
    pub positions: &'a [u32],
    /// `[num_seqs]` rows: the blocks of each sequence in order of position.
    pub block_tables: &'a [Vec<u32>],
    /// `[num_seqs + 1]`: ranges of query rows.
    pub cu_seqlens_q: &'a [u32],
    /// `[num_seqs]`: positions in the cache.
    pub context_lens: &'a [u32],
}

/// Query rows times heads of one tile, at most (a single row may have more heads).
const TILE_ROWS: usize = 64;
/// Less work (in multiply-adds) stays on the calling thread.
const PARALLEL_FROM: usize = 1 << 16;

/// Attention of `q [T, H, D]` (f32) over `k` and `v [num_blocks, 32, KVH, D]` (f32, bf16 or f16),
/// where `H` is a multiple of `KVH`: `[T, H, D]` in f32.
///
/// # Errors
///
/// Shapes that don't fit, a row outside of its sequence, a block outside of the cache.
pub fn paged_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    ragged: Ragged<'_>,
    params: AttentionParams,
) -> Result<Tensor> {
    check(q, k, v, ragged, params)?;
    if !q.device().is_cpu() {
        return portable::paged_attention(q, k, v, ragged, params);
    }
    paged_attention_at(Level::current(), q, k, v, ragged, params)
}

fn paged_attention_at(
    level: Level,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    ragged: Ragged<'_>,
    params: AttentionParams,
) -> Result<Tensor> {
    q.apply_op3_no_bwd(k, v, &PagedAttention { level, ragged, params })
}

fn check(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    ragged: Ragged<'_>,
    params: AttentionParams,
) -> Result<()> {
    let (rows, heads, head_dim) = q.dims3()?;
    let (num_blocks, block, kv_heads, kv_dim) = k.dims4()?;
    if k.dims() != v.dims() || k.dtype() != v.dtype() {
        bail!("paged_attention: keys {:?} and values {:?} differ", k.dims(), v.dims());
    }
    if block != KV_BLOCK
        || kv_dim != head_dim
        || head_dim == 0
        || kv_heads == 0
        || !heads.is_multiple_of(kv_heads)
    {
        bail!("paged_attention: queries {:?} don't fit a cache of {:?}", q.dims(), k.dims());
    }
    if params.window == Some(0) {
        bail!("paged_attention: a window of 0 positions leaves nothing to see");
    }
    ragged.check(rows, num_blocks)
}

impl Ragged<'_> {
    fn check(&self, rows: usize, num_blocks: usize) -> Result<()> {
        let seqs = self.context_lens.len();
        let ends = self.cu_seqlens_q;
        if self.block_tables.len() != seqs || ends.len() != seqs + 1 || self.positions.len() != rows
        {
            bail!(
                "paged_attention: {} block tables, {} row bounds and {} positions for {seqs} \
                 sequences of {rows} rows",
                self.block_tables.len(),
                ends.len(),
                self.positions.len()
            );
        }
        if ends[0] != 0 || ends[seqs] as usize != rows || !ends.is_sorted() {
            bail!("paged_attention: row bounds {ends:?} don't ascend from 0 to {rows}");
        }
        (0..seqs).try_for_each(|seq| self.check_sequence(seq, num_blocks))
    }

    fn check_sequence(&self, seq: usize, num_blocks: usize) -> Result<()> {
        let (context, table) = (self.context_lens[seq], &self.block_tables[seq]);
        let needed = (context as usize).div_ceil(KV_BLOCK);
        if table.len() < needed {
            bail!("paged_attention: {} blocks for {context} positions", table.len());
        }
        if let Some(block) = table[..needed].iter().find(|block| **block as usize >= num_blocks) {
            bail!("paged_attention: block {block} of a cache with {num_blocks} blocks");
        }
        let positions = &self.positions[self.rows(seq)];
        match positions.iter().find(|position| **position >= context) {
            Some(position) => {
                bail!("paged_attention: position {position} in a context of {context}")
            }
            None => Ok(()),
        }
    }

    fn rows(&self, seq: usize) -> std::ops::Range<usize> {
        self.cu_seqlens_q[seq] as usize..self.cu_seqlens_q[seq + 1] as usize
    }
}

struct PagedAttention<'a> {
    level: Level,
    ragged: Ragged<'a>,
    params: AttentionParams,
}

impl CustomOp3 for PagedAttention<'_> {
    fn name(&self) -> &'static str {
        "paged_attention"
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let name = self.name();
        let q = storage::contiguous::<f32>(name, q, q_layout)?;
        let (_, heads, head_dim) = q_layout.shape().dims3()?;
        let (_, _, kv_heads, _) = k_layout.shape().dims4()?;
        let shape = Heads { query: heads, kv: kv_heads, dim: head_dim };
        let out = match candle_core::backend::BackendStorage::dtype(k) {
            DType::F32 => {
                let k = storage::contiguous::<f32>(name, k, k_layout)?;
                self.attend(q, k, storage::contiguous::<f32>(name, v, v_layout)?, shape)
            }
            DType::BF16 => {
                let k = storage::contiguous::<bf16>(name, k, k_layout)?;
                self.attend(q, k, storage::contiguous::<bf16>(name, v, v_layout)?, shape)
            }
            DType::F16 => {
                let k = storage::contiguous::<f16>(name, k, k_layout)?;
                self.attend(q, k, storage::contiguous::<f16>(name, v, v_layout)?, shape)
            }
            other => bail!("paged_attention: a cache of {other:?}; f32, bf16, f16 are supported"),
        };
        Ok((CpuStorage::F32(out), q_layout.shape().clone()))
    }
}

#[derive(Clone, Copy)]
struct Heads {
    query: usize,
    kv: usize,
    dim: usize,
}

/// Query rows of one sequence that are computed together.
struct Queries {
    seq: usize,
    first: usize,
    count: usize,
}

impl PagedAttention<'_> {
    fn attend<E: Element>(&self, q: &[f32], k: &[E], v: &[E], shape: Heads) -> Vec<f32> {
        let queries = self.queries(shape.query / shape.kv);
        let chunks = queries.len() * shape.kv;
        let run = |out: &super::fresh::Parts<'_, _>| {
            let chunk = |i: usize| {
                let Queries { seq, first, count } = queries[i / shape.kv];
                self.level.run(tile::Tile {
                    q,
                    k,
                    v,
                    positions: &self.ragged.positions[first..first + count],
                    blocks: &self.ragged.block_tables[seq],
                    params: self.params,
                    heads: shape.query,
                    kv_heads: shape.kv,
                    kv_head: i % shape.kv,
                    head_dim: shape.dim,
                    first_row: first,
                    out,
                });
            };
            if self.work(shape) < PARALLEL_FROM {
                (0..chunks).for_each(chunk);
            } else {
                pool::for_each_chunk(chunks, chunk);
            }
        };
        // SAFETY: the tiles cover all rows and heads, and each writes all elements of its own.
        unsafe { filled(q.len(), run) }
    }

    fn queries(&self, group: usize) -> Vec<Queries> {
        let most = (TILE_ROWS / group.max(1)).max(1);
        let mut queries = Vec::new();
        // Last rows first: they see the most, and a long tile at the end would run alone.
        for seq in 0..self.ragged.context_lens.len() {
            let rows = self.ragged.rows(seq);
            for first in rows.clone().step_by(most).rev() {
                queries.push(Queries { seq, first, count: most.min(rows.end - first) });
            }
        }
        queries
    }

    /// Multiply-adds, about.
    fn work(&self, shape: Heads) -> usize {
        let positions: usize = self.ragged.positions.iter().map(|p| *p as usize + 1).sum();
        2 * positions * shape.query * shape.dim
    }
}

#[cfg(test)]
mod tests;
