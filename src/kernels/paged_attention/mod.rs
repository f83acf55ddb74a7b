//! Attention over the paged KV cache, for any mix of prefill chunks and single tokens.
//!
//! A query sees the positions up to its own, or the last `window` of them, or those of its own
//! `chunk`; some see further positions, which the step names. The context is cut into spans of 256 positions that start at multiples of 256, whatever chunk of the prompt the query
//! came in with. Inside a span, softmax is relative to the span's largest score and values are
//! summed in ascending order of position; spans are merged one by one in ascending order, as in
//! online softmax (Milakov and Gimelshein, 2018). Threads may take different spans of one
//! sequence, as in "Flash-Decoding" (Dao et al., 2023). So a query's result is the same to the bit
//! however its sequence was cut, whatever else is in the batch and however many threads there are.
//! The cache is that of Kwon et al., "Efficient Memory Management for Large Language Model Serving
//! with PagedAttention", 2023; its layout is described in [`super::cache::kv_format`].

use candle_core::{DType, Result, Tensor, bail};

pub use self::args::{AttentionParams, PerHead};
use super::backend::Backend;
use super::cache::KV_BLOCK;
use super::cache::kv_format::CacheShape;
use super::step::Step;

mod args;
mod attend;
mod cpu;
mod cuda;
#[cfg(any(feature = "metal", test))]
mod metal;
mod paired_tile;
mod pairs;
mod plan;
pub mod portable;
mod registers;
mod softmax;
mod sums;
#[cfg(test)]
mod tests;
mod tile;
#[cfg(target_arch = "x86_64")]
mod tiles;

/// Attention of `q [T, H, D]` (f32) over a cache as in [`kv_format`](super::cache::kv_format), whose
/// number of heads divides `H`: `[T, H, DV]` in f32, where `DV` are the elements of a value.
///
/// # Errors
///
/// Shapes that don't fit, a row outside of its sequence, a block outside of the cache.
pub fn paged_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    step: &Step,
    params: AttentionParams,
    per_head: PerHead<'_>,
) -> Result<Tensor> {
    paged_attention_as(DType::F32, q, [k, v], step, params, per_head)
}

/// As [`paged_attention`], rounded to a type.
///
/// # Errors
///
/// As for [`paged_attention`].
pub fn paged_attention_as(
    dtype: DType,
    q: &Tensor,
    [k, v]: [&Tensor; 2],
    step: &Step,
    params: AttentionParams,
    per_head: PerHead<'_>,
) -> Result<Tensor> {
    let shape = check(q, k, v, step, params)?;
    per_head.check(q.dim(1)?)?;
    match Backend::of(q.device()) {
        Backend::Cpu(level) => {
            cpu::paged_attention(level, [q, k, v], step, params, per_head, (shape, dtype))?
                .to_dtype(dtype)
        }
        Backend::Cuda => cuda::paged_attention(q, [k, v], step, params, per_head, (shape, dtype)),
        Backend::Portable => {
            portable::paged_attention(q, k, v, step, params, per_head)?.to_dtype(dtype)
        }
    }
}

fn check(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    step: &Step,
    params: AttentionParams,
) -> Result<CacheShape> {
    let (rows, heads, head_dim) = q.dims3()?;
    let shape = CacheShape::of(k, v, head_dim)?;
    if heads == 0 || !heads.is_multiple_of(shape.kv_heads) {
        bail!("paged_attention: {heads} query heads don't fit a cache of {} heads", shape.kv_heads);
    }
    if params.window == Some(0) || params.chunk == Some(0) {
        bail!("paged_attention: a window or chunk of 0 positions leaves nothing to see");
    }
    step.check_attention(rows, shape.num_blocks, params.ahead > 0)?;
    Ok(shape)
}

impl PerHead<'_> {
    fn check(&self, heads: usize) -> Result<()> {
        let all = [self.sinks, self.slopes].into_iter().flatten();
        match all.map(|each| each.host.len()).find(|count| *count != heads) {
            Some(count) => bail!("paged_attention: {count} numbers for {heads} heads"),
            None => Ok(()),
        }
    }
}

impl Step {
    /// With `ahead`, where queries see what is behind them, one may stand behind all that any sees.
    pub(crate) fn check_attention(
        &self,
        rows: usize,
        num_blocks: usize,
        ahead: bool,
    ) -> Result<()> {
        let seqs = self.context_lens.len();
        let ends = &self.cu_seqlens_q;
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
        if !self.attention_ends.is_empty() && self.attention_ends.len() != rows {
            bail!("paged_attention: {} ends for {rows} rows", self.attention_ends.len());
        }
        let starts = self.attention_starts.len();
        if starts != 0 && starts != self.attention_ends.len() {
            bail!("paged_attention: {starts} starts for {} ends", self.attention_ends.len());
        }
        if ends[0] != 0 || ends[seqs] as usize != rows || !ends.is_sorted() {
            bail!("paged_attention: row bounds {ends:?} don't ascend from 0 to {rows}");
        }
        (0..seqs).try_for_each(|seq| self.check_sequence(seq, num_blocks, ahead))
    }

    fn check_sequence(&self, seq: usize, num_blocks: usize, ahead: bool) -> Result<()> {
        let (context, table) = (self.context_lens[seq], &self.block_tables[seq]);
        let needed = (context as usize).div_ceil(KV_BLOCK);
        if table.len() < needed {
            bail!("paged_attention: {} blocks for {context} positions", table.len());
        }
        if let Some(block) = table[..needed].iter().find(|block| **block as usize >= num_blocks) {
            bail!("paged_attention: block {block} of a cache with {num_blocks} blocks");
        }
        let ends = self.attention_ends.get(self.rows(seq)).unwrap_or_default();
        if let Some(end) = ends.iter().find(|end| **end > context) {
            bail!("paged_attention: a query sees up to {end} in a context of {context}");
        }
        let positions = &self.positions[self.rows(seq)];
        match positions.iter().find(|position| **position >= context && !ahead) {
            Some(position) => {
                bail!("paged_attention: position {position} in a context of {context}")
            }
            None => Ok(()),
        }
    }
}
