//! Attention over the paged KV cache, for any mix of prefill chunks and single tokens.
//!
//! A query sees the positions up to its own, or the last `window` of them, or those of its own
//! `chunk`. The context is cut into
//! spans of 256 positions that start at multiples of 256, whatever chunk of the prompt the query
//! came in with. Inside a span, softmax is relative to the span's largest score and values are
//! summed in ascending order of position; spans are merged one by one in ascending order, as in
//! online softmax (Milakov and Gimelshein, 2018). Threads may take different spans of one
//! sequence, as in "Flash-Decoding" (Dao et al., 2023). So a query's result is the same to the bit
//! however its sequence was cut, whatever else is in the batch and however many threads there are.
//! The cache is that of Kwon et al., "Efficient Memory Management for Large Language Model Serving
//! with PagedAttention", 2023; its layout is described in [`crate::kernels::cache::kv_format`].

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::Ordering;

use candle_core::{Result, Tensor, bail};
use float8::F8E4M3;
use half::{bf16, f16};

use super::backend::cpu_level;
use super::cpu::Level;
use super::floats::Floats;
use super::fresh::{Parts, filled};
use super::step_tensors::StepTensors;
use super::{cuda, pool, portable, storage};
use crate::kernels::cache::KV_BLOCK;
use crate::kernels::cache::kv_element::{Stored, Vector};
use crate::kernels::cache::kv_format::{CacheShape, KvFormat};

mod plan;
mod registers;
mod sums;
mod tile;

use plan::{Heads, Piece, Plan};
use sums::{Joined, Output, Record};
use tile::{Goal, Run, Tile};

const NAME: &str = "paged_attention";
/// Positions that are reduced on their own before they meet those of other spans.
const SPAN: usize = 256;
/// Less work (in multiply-adds) stays on the calling thread.
const PARALLEL_FROM: usize = 1 << 16;

/// What all queries of one call share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionParams {
    /// Factor of the scores, commonly `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// `cap * tanh(score / cap)` on scaled scores.
    pub softcap: Option<f32>,
    /// A query sees this many positions, its own included; at least 1.
    pub window: Option<usize>,
    /// A query sees no position before the last multiple of this; at least 1.
    pub chunk: Option<usize>,
}

impl AttentionParams {
    /// Queries see all positions up to their own, with scores times `scale`.
    pub fn full(scale: f32) -> Self {
        Self { scale, softcap: None, window: None, chunk: None }
    }

    /// The first position that a query at `position` sees.
    #[inline(always)]
    pub(super) fn first_seen(self, position: u32) -> usize {
        let end = position as usize + 1;
        let start = end.saturating_sub(self.window.unwrap_or(end));
        let chunk = self.chunk.map_or(0, |chunk| position as usize / chunk * chunk);
        start.max(chunk)
    }
}

/// What differs between query heads, each `[H]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerHead<'a> {
    /// A score that queries have besides those of positions, for a value of zero: Xiao et al.,
    /// "Efficient Streaming Language Models with Attention Sinks", 2023.
    pub sinks: Option<&'a Floats>,
    /// What a score loses with each position between query and key: Press et al., "Train Short,
    /// Test Long", 2021.
    pub slopes: Option<&'a Floats>,
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
    /// The same on the device, if it is there already.
    pub on_device: Option<&'a StepTensors>,
}

/// Attention of `q [T, H, D]` (f32) over a cache as in [`crate::kernels::cache::kv_format`] whose heads `H` is a
/// multiple of: `[T, H, DV]` in f32, where `DV` are the elements of a value.
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
    per_head: PerHead<'_>,
) -> Result<Tensor> {
    let shape = check(q, k, v, ragged, params)?;
    per_head.check(q.dim(1)?)?;
    if cuda::on(q.device()) {
        return cuda::attention::paged_attention(q, [k, v], ragged, params, per_head, shape);
    }
    if portable::on(q.device()) {
        return portable::paged_attention(q, k, v, ragged, params, per_head);
    }
    let seen: usize = ragged.positions.iter().map(|position| *position as usize + 1).sum();
    let parallel = seen * q.dim(1)? * (shape.key_dim + shape.value_dim) >= PARALLEL_FROM;
    let threads = if parallel { pool::threads() } else { 1 };
    Call { level: cpu_level(), threads, ragged, params, per_head, shape }.run(q, k, v)
}

fn check(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    ragged: Ragged<'_>,
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
    ragged.check(rows, shape.num_blocks)?;
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

/// The positions that one query sees.
#[derive(Clone, Copy)]
struct Visible {
    start: usize,
    end: usize,
}

impl Visible {
    /// Of a query at `position`.
    #[inline(always)]
    fn to(position: u32, params: AttentionParams) -> Self {
        Self { start: params.first_seen(position), end: position as usize + 1 }
    }

    /// Those in `range`, relative to its start.
    #[inline(always)]
    fn within(self, range: Range<usize>) -> Range<usize> {
        let Range { start, end } = range;
        self.start.clamp(start, end) - start..self.end.clamp(start, end) - start
    }
}

/// One call on the CPU, its arguments checked.
struct Call<'a> {
    level: Level,
    /// 1 keeps all on the calling thread.
    threads: usize,
    ragged: Ragged<'a>,
    params: AttentionParams,
    per_head: PerHead<'a>,
    shape: CacheShape,
}

/// What all tiles of a call read.
struct Operands<'a, S> {
    /// `[T, heads, key_dim]`
    q: &'a [f32],
    k: &'a [S],
    v: &'a [S],
    params: AttentionParams,
    per_head: PerHead<'a>,
    heads: usize,
    shape: CacheShape,
}

impl<S> Operands<'_, S> {
    /// Query heads that share a KV head.
    #[inline(always)]
    fn group(&self) -> usize {
        self.heads / self.shape.kv_heads
    }
}

impl Call<'_> {
    fn run(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (rows, heads, _) = q.dims3()?;
        let out = match self.shape.format {
            KvFormat::F32 => self.read::<f32>(q, k, v, heads),
            KvFormat::F16 => self.read::<f16>(q, k, v, heads),
            KvFormat::Bf16 => self.read::<bf16>(q, k, v, heads),
            KvFormat::Fp8 => self.read::<F8E4M3>(q, k, v, heads),
            KvFormat::Q8_0 => self.read::<u8>(q, k, v, heads),
        };
        Tensor::from_vec(out?, (rows, heads, self.shape.value_dim), q.device())
    }

    fn read<S: Stored>(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        heads: usize,
    ) -> Result<Vec<f32>> {
        storage::read(NAME, q, |q, q_layout| {
            storage::read(NAME, k, |k, k_layout| {
                storage::read(NAME, v, |v, v_layout| {
                    Ok(self.attend(&Operands {
                        q: storage::contiguous::<f32>(NAME, q, q_layout)?,
                        k: storage::contiguous::<S>(NAME, k, k_layout)?,
                        v: storage::contiguous::<S>(NAME, v, v_layout)?,
                        params: self.params,
                        per_head: self.per_head,
                        heads,
                        shape: self.shape,
                    }))
                })
            })
        })
    }

    fn attend<S: Stored>(&self, operands: &Operands<'_, S>) -> Vec<f32> {
        let CacheShape { kv_heads, key_dim, value_dim, .. } = self.shape;
        let group = operands.group();
        let heads = Heads { group, kv: kv_heads, dims: key_dim + value_dim };
        let plan = Plan::new(self.ragged, self.params, heads, self.threads);
        let mut records = vec![Vector::default(); plan.records * Record::new(value_dim).len()];
        let records = &Parts::new(&mut records);
        let run = |out: &Parts<'_, MaybeUninit<f32>>| {
            let piece = |i: usize| self.piece(operands, &plan, &plan.pieces[i], records, out);
            if self.threads == 1 {
                (0..plan.pieces.len()).for_each(piece);
            } else {
                pool::for_each_chunk(plan.pieces.len(), piece);
            }
        };
        // SAFETY: the tiles cover all rows and heads; each writes all elements of its own, and so
        // does the last piece of a tile that was cut.
        unsafe { filled(self.ragged.positions.len() * operands.heads * value_dim, run) }
    }

    fn piece<S: Stored>(
        &self,
        operands: &Operands<'_, S>,
        plan: &Plan,
        piece: &Piece,
        records: &Parts<'_, Vector>,
        out: &Parts<'_, MaybeUninit<f32>>,
    ) {
        let record = Record::new(self.shape.value_dim);
        let queries = &plan.queries[piece.queries];
        let output = Output {
            out,
            first_row: queries.rows.start,
            heads: operands.heads,
            group: operands.group(),
            kv_head: piece.kv_head,
            value_dim: self.shape.value_dim,
            sinks: self.per_head.sinks.map(|sinks| sinks.host.as_slice()),
        };
        let tile = Tile {
            operands,
            first_row: queries.rows.start,
            positions: &self.ragged.positions[queries.rows.clone()],
            blocks: &self.ragged.block_tables[queries.seq],
            kv_head: piece.kv_head,
            spans: piece.spans.clone(),
        };
        let positions = tile.positions;
        let Some(joint) = piece.joint.map(|joint| &plan.joints[joint]) else {
            self.level.run(Run { tile, goal: Goal::Output(output) });
            return;
        };
        let span_len = positions.len() * output.group * record.len();
        let first = joint.first_record * record.len();
        let at = |span: usize| first + (span - queries.spans.start) * span_len;
        // SAFETY: the spans of a tile's pieces don't overlap, nor do the records of tiles.
        let own = unsafe { records.part(at(piece.spans.start)..at(piece.spans.end)) };
        self.level.run(Run { tile, goal: Goal::Records(own) });
        if joint.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: all pieces of the tile are done with their records, as the count says.
            let records = unsafe { records.part(at(queries.spans.start)..at(queries.spans.end)) };
            let first_span = queries.spans.start;
            let params = self.params;
            self.level.run(Joined { records, first_span, positions, params, output });
        }
    }
}

#[cfg(test)]
mod tests;
