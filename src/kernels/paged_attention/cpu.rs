//! Attention on the CPU: pieces of the work, and who merges them.

use std::ops::Range;
use std::sync::atomic::Ordering;

use candle_core::{DType, Result, Tensor};
use float8::F8E4M3;
use half::{bf16, f16};

use super::args::{AttentionParams, NAME, PerHead, QueryPositions};
use super::attend::{Goal, Run, Together};
use super::plan::{Heads, MOST_ROWS, MOST_ROWS_IN_REGISTERS, Piece, Plan};
use super::sums::{Joined, Output, Record};
use super::tile::{Operands, Tile};
use crate::cache::kv_element::{Stored, Vector};
use crate::cache::kv_format::{CacheShape, KvFormat};
use crate::cpu::Level;
use crate::fresh::{Parts, ResultParts, Results};
use crate::pool;
use crate::step::Step;
use crate::storage::read;

/// Less work (in multiply-adds) stays on the calling thread.
const PARALLEL_FROM: usize = 1 << 16;

/// Attention by the kernels of a level, with checked arguments: in bf16 if `dtype` is, else in f32.
pub(super) fn paged_attention(
    level: Level,
    [q, k, v]: [&Tensor; 3],
    step: &Step,
    params: AttentionParams,
    per_head: PerHead<'_>,
    (shape, dtype): (CacheShape, DType),
) -> Result<Tensor> {
    let seen: usize = step.positions.iter().map(|position| *position as usize + 1).sum();
    let parallel = seen * q.dim(1)? * (shape.key_dim + shape.value_dim) >= PARALLEL_FROM;
    let threads = if parallel { pool::threads() } else { 1 };
    Call { level, threads, step, params, per_head, shape, dtype }.run(q, k, v)
}

/// The checked arguments of one call.
pub(super) struct Call<'a> {
    pub(super) level: Level,
    /// Threads to share the work; 1 keeps all on the calling thread.
    pub(super) threads: usize,
    pub(super) step: &'a Step,
    pub(super) params: AttentionParams,
    pub(super) per_head: PerHead<'a>,
    pub(super) shape: CacheShape,
    /// Of the output: bf16, else f32.
    pub(super) dtype: DType,
}

impl Call<'_> {
    pub(super) fn run(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (_, heads, _) = q.dims3()?;
        match self.shape.format {
            KvFormat::F32 => self.read::<f32>(q, k, v, heads),
            KvFormat::F16 => self.read::<f16>(q, k, v, heads),
            KvFormat::Bf16 => self.read::<bf16>(q, k, v, heads),
            KvFormat::Fp8 => self.read::<F8E4M3>(q, k, v, heads),
            KvFormat::Q8_0 => self.read::<u8>(q, k, v, heads),
        }
    }

    fn read<S: Stored>(&self, q: &Tensor, k: &Tensor, v: &Tensor, heads: usize) -> Result<Tensor> {
        let [q, k, v] = [q, k, v].map(|tensor| read(NAME, tensor));
        self.attend(&Operands {
            q: q.contiguous()?,
            k: k.contiguous::<S>()?,
            v: v.contiguous()?,
            params: self.params,
            per_head: self.per_head,
            heads,
            shape: self.shape,
            #[cfg(target_arch = "x86_64")]
            amx: self.level.tiles().map(|tiled| tiled.amx),
        })
    }

    fn attend<S: Stored>(&self, operands: &Operands<'_, S>) -> Result<Tensor> {
        let CacheShape { kv_heads, key_dim, value_dim, .. } = self.shape;
        let group = operands.group();
        #[cfg(target_arch = "x86_64")]
        let in_registers = operands.amx.is_some();
        #[cfg(not(target_arch = "x86_64"))]
        let in_registers = false;
        let most_rows = if in_registers { MOST_ROWS_IN_REGISTERS } else { MOST_ROWS };
        let heads = Heads { group, kv: kv_heads, dims: key_dim + value_dim, most_rows };
        let plan = Plan::new(self.step, self.params, heads, self.threads);
        let mut records = vec![Vector::default(); plan.records * Record::new(value_dim).len()];
        let records = &Parts::new(&mut records);
        let shape = (self.step.positions.len(), operands.heads, value_dim);
        let mut results = Results::new(shape.0 * shape.1 * shape.2, self.dtype);
        let out = &results.parts();
        let piece = |i: usize| self.piece(operands, &plan, &plan.pieces[i], records, out);
        if self.threads == 1 {
            (0..plan.pieces.len()).for_each(piece);
        } else {
            pool::for_each_chunk(plan.pieces.len(), piece);
        }
        // SAFETY: the tiles cover all rows and heads; each writes all elements of its own, and so
        // does the last piece of a tile that was cut.
        unsafe { results.into_tensor(shape) }
    }

    fn piece<S: Stored>(
        &self,
        operands: &Operands<'_, S>,
        plan: &Plan,
        piece: &Piece,
        records: &Parts<'_, Vector>,
        out: &ResultParts<'_>,
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
        let seqs = queries.seqs.clone();
        // Rows of several sequences see nothing behind their own positions, whatever the contexts are.
        let context =
            seqs.clone().map(|seq| self.step.context_lens[seq] as usize).max().unwrap_or(0);
        let tile = |seq: usize, rows: Range<usize>| Tile {
            operands,
            first_row: rows.start,
            rounded_before: (rows.start - queries.rows.start) * operands.group(),
            positions: QueryPositions::of(self.step, rows),
            context,
            blocks: &self.step.block_tables[seq],
            kv_head: piece.kv_head,
            spans: piece.spans.clone(),
        };
        let all = tile(seqs.start, queries.rows.clone());
        let positions = all.positions;
        let each = if seqs.len() > 1 {
            seqs.map(|seq| tile(seq, queries.rows_of(self.step, seq))).collect()
        } else {
            Vec::new()
        };
        let together = Together { all, each, shared: queries.shared };
        let Some(joint) = piece.joint.map(|joint| &plan.joints[joint]) else {
            self.level.run(Run { together, goal: Goal::Output(output) });
            return;
        };
        let span_len = positions.len() * output.group * record.len();
        let first = joint.first_record * record.len();
        let at = |span: usize| first + (span - queries.spans.start) * span_len;
        // SAFETY: the spans of a tile's pieces don't overlap, nor do the records of tiles.
        let own = unsafe { records.part(at(piece.spans.start)..at(piece.spans.end)) };
        self.level.run(Run { together, goal: Goal::Records(own) });
        if joint.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: all pieces of the tile are done with their records, as the count says.
            let records = unsafe { records.part(at(queries.spans.start)..at(queries.spans.end)) };
            let first_span = queries.spans.start;
            let params = self.params;
            self.level.run(Joined { records, first_span, positions, context, params, output });
        }
    }
}
