//! Attention on NVIDIA GPUs: which form of the kernel takes which sequences.
//!
//! Sequences with few queries are bound by reading the cache, so their contexts are split among
//! many blocks of threads; those with many share what is read among queries. The forms agree to the
//! bit, so it makes no difference which one a sequence gets.

use std::ops::Range;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::args::{AttentionParams, PerHead};
use crate::cache::kv_format::{CacheShape, KvFormat};
use crate::cuda::launch::{
    Address, Launch, Source, kernel_struct, most_shared, narrow, output_buffer, output_type, source,
};
use crate::floats::Floats;
use crate::step::{Step, StepTensors};

static SOURCE: Source = source!("paged_attention/kernel");

/// Positions of a span.
const SPAN: usize = 256;
/// Rows of a tile of a warp.
const WARP_ROWS: usize = 16;
/// Most queries of a sequence whose context is always split; more of them share what is read, unless
/// the context is much longer than they are many.
const FEW_QUERIES: u32 = 4;
/// Most queries of a sequence whose long context is split.
const SOME_QUERIES: u32 = 128;
/// Positions for each of some queries from which on a context is long.
const LONG_CONTEXT: u32 = 64;
/// Warps that keep the memory of a large GPU busy.
const BUSY_WARPS: usize = 1024;
/// Spans of a context that one warp takes at most, where there are warps enough without splitting.
const WHOLE_SPANS: usize = 8;
/// Most blocks of a launch in which few contexts are split: all others of a context that is not leave
/// at once, but it takes time to start them.
const MOST_PIECES: usize = 32_768;
/// Most bytes of records of split contexts. What has no room is computed as a whole.
const MOST_RECORDS: usize = 64 << 20;
/// Head sizes of the kernels that run on tensor cores.
const TENSOR_CORE_DIMS: [usize; 6] = [64, 80, 96, 128, 192, 256];

kernel_struct! {
    struct Attention {
        q: Address,
        k: Address,
        v: Address,
        out: Address,
        partials: Address,
        positions: Address,
        starts: Address,
        ends: Address,
        tables: Address,
        cu_seqlens: Address,
        context_lens: Address,
        sinks: Address,
        slopes: Address,
        table_stride: u32,
        num_seqs: u32,
        heads: u32,
        kv_heads: u32,
        key_dim: u32,
        value_dim: u32,
        scale: f32,
        softcap: f32,
        window: u32,
        chunk: u32,
        ahead: u32,
        queries_per_tile: u32,
        spans: u32,
        partial_rows: u32,
        whole_spans: u32,
        out_type: u32,
    }
}

/// What all launches of a call share.
struct Call<'a> {
    arguments: Attention,
    tensors: &'a StepTensors,
    shape: CacheShape,
    heads: usize,
    device: &'a Device,
}

/// See [`super::paged_attention`]; the arguments were checked against
/// each other and against `shape`.
pub(super) fn paged_attention(
    q: &Tensor,
    [k, v]: [&Tensor; 2],
    step: &Step,
    params: AttentionParams,
    per_head: PerHead<'_>,
    (shape, dtype): (CacheShape, DType),
) -> Result<Tensor> {
    let (rows, heads, _) = q.dims3()?;
    let sees_ahead = params.ahead > 0 || !step.attention_ends.is_empty();
    if sees_ahead && per_head.slopes.is_some() {
        bail!("paged_attention: no slopes for positions behind a query's own on this device");
    }
    let device = q.device();
    let own;
    let tensors = if let Some(tensors) = step.tensors() {
        tensors
    } else {
        own = step.to_device(device)?;
        &own
    };
    let q = q.contiguous()?;
    let out = output_buffer((rows, heads, shape.value_dim), dtype, device)?;
    let numbers = |numbers: Option<&Floats>| {
        Address::of_some(numbers.map(|numbers| &numbers.tensor), DType::F32)
    };
    let named = |numbers: &Option<Tensor>| {
        Address::of_some(numbers.as_ref().filter(|_| params.to_named_end), DType::U32)
    };
    let stored = shape.format.dtype();
    let arguments = Attention {
        q: Address::of(&q, DType::F32)?,
        k: Address::of(k, stored)?,
        v: Address::of(v, stored)?,
        out: Address::to_write(&out, dtype)?,
        partials: Address::NONE,
        positions: Address::of(&tensors.positions, DType::U32)?,
        starts: named(&tensors.attention_starts)?,
        ends: named(&tensors.attention_ends)?,
        tables: Address::NONE,
        cu_seqlens: Address::NONE,
        context_lens: Address::NONE,
        sinks: numbers(per_head.sinks)?,
        slopes: numbers(per_head.slopes)?,
        table_stride: narrow(tensors.block_tables.dim(1)?)?,
        num_seqs: 0,
        heads: narrow(heads)?,
        kv_heads: narrow(shape.kv_heads)?,
        key_dim: narrow(shape.key_dim)?,
        value_dim: narrow(shape.value_dim)?,
        scale: params.scale,
        softcap: params.softcap.unwrap_or(0.0),
        // A window that no context can fill is none.
        window: params.window.map_or(0, |window| u32::try_from(window).unwrap_or(0)),
        chunk: params.chunk.map_or(0, |chunk| u32::try_from(chunk).unwrap_or(0)),
        ahead: u32::try_from(params.ahead).unwrap_or(u32::MAX),
        queries_per_tile: 0,
        spans: narrow(tensors.longest_context.div_ceil(SPAN).max(1))?,
        partial_rows: 0,
        whole_spans: 0,
        out_type: output_type(dtype)?,
    };
    let call = Call { arguments, tensors, shape, heads, device };
    for (seqs, few) in runs(&step.cu_seqlens_q, &step.context_lens) {
        let rows = step.cu_seqlens_q[seqs.end] - step.cu_seqlens_q[seqs.start];
        call.run(seqs, rows as usize, few)?;
    }
    Ok(out)
}

/// Runs of neighbouring sequences whose contexts are split, or are read by many queries each, in order.
fn runs(cu_seqlens: &[u32], context_lens: &[u32]) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    for (seq, (bounds, context)) in cu_seqlens.windows(2).zip(context_lens).enumerate() {
        let queries = bounds[1] - bounds[0];
        let few = queries <= FEW_QUERIES
            || (queries <= SOME_QUERIES && *context / LONG_CONTEXT >= queries);
        match runs.last_mut() {
            Some((run, same)) if *same == few => run.end = seq + 1,
            _ => runs.push((seq..seq + 1, few)),
        }
    }
    runs
}

/// How contexts are split among blocks of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Splits {
    /// Blocks that share a split context.
    count: usize,
    /// Spans of a context that is not split.
    whole_spans: usize,
    /// Queries for which there are records.
    rows: usize,
}

impl Splits {
    const NONE: Self = Self { count: 1, whole_spans: 0, rows: 0 };

    /// For so many queries in `blocks` blocks of threads, with contexts of at most `spans` spans and
    /// records of these bytes for each query.
    ///
    /// Few blocks split all contexts, to keep the device busy. Many split only those that would still
    /// run when all others are done.
    fn of(rows: usize, blocks: usize, spans: usize, bytes: usize) -> Self {
        let busy = BUSY_WARPS.div_ceil(blocks).min(spans);
        let room = (MOST_RECORDS / bytes).max(1);
        if busy > 1 && rows <= room {
            return Self { count: busy, whole_spans: 0, rows };
        }
        let balanced = spans.div_ceil(WHOLE_SPANS).min(MOST_PIECES / blocks).max(busy);
        match balanced {
            0 | 1 => Self::NONE,
            count => Self { count, whole_spans: WHOLE_SPANS, rows: rows.min(room) },
        }
    }

    /// Whether blocks of threads take contexts as a whole.
    fn leaves_some_whole(self) -> bool {
        self.count == 1 || self.whole_spans > 0
    }
}

/// How the rows of a launch are cut into tiles.
struct Tiles {
    queries: usize,
    /// Tiles that the heads of one group take.
    parts: usize,
}

impl Tiles {
    fn of(rows: usize, group: usize) -> Self {
        let parts = group.div_ceil(rows);
        Self { queries: rows / group.div_ceil(parts), parts }
    }
}

impl Call<'_> {
    /// Computes the sequences `seqs`, which have `rows` queries together.
    fn run(&self, seqs: Range<usize>, rows: usize, few: bool) -> Result<()> {
        let CacheShape { format, kv_heads, key_dim, value_dim, .. } = self.shape;
        let group = self.heads / kv_heads;
        let name = match format {
            KvFormat::F32 => "f32",
            KvFormat::F16 => "f16",
            KvFormat::Bf16 => "bf16",
            KvFormat::Fp8 => "f8",
            KvFormat::Q8_0 => "q8_0",
        };
        // Bytes of shared memory that hold blocks of the cache for tensor cores, if those can be used.
        let known = key_dim == value_dim && TENSOR_CORE_DIMS.contains(&key_dim);
        let held = match format {
            _ if !known => None,
            KvFormat::F32 => None,
            KvFormat::F16 | KvFormat::Bf16 => Some(256 * key_dim + 1024),
            KvFormat::Fp8 => Some(192 * key_dim + 512),
            KvFormat::Q8_0 => Some(196 * key_dim + 512),
        };
        if let Some(held) = held.filter(|_| !few) {
            let shared = |warps: usize| {
                let queries = if key_dim > 192 { 32 * key_dim * warps } else { 0 };
                held + 64 * key_dim * warps + queries
            };
            let warps = if shared(4) <= most_shared(self.device) { 4 } else { 1 };
            let tiles = Tiles::of(WARP_ROWS * warps, group);
            let kernel = format!("attention_prefill_{name}_{key_dim}");
            let block = (32 * warps, shared(warps));
            return self.launch(&kernel, seqs, rows, &tiles, Splits::NONE, block);
        }
        let tiles = Tiles::of(if held.is_some() { WARP_ROWS } else { 8 }, group);
        let spans = self.arguments.spans as usize;
        let blocks = (rows / tiles.queries + seqs.len()) * kv_heads * tiles.parts;
        let bytes = self.heads * spans * (value_dim + 2) * size_of::<f32>();
        let splits = Splits::of(rows, blocks, spans, bytes);
        let Some(held) = held else {
            let shared = 32 * key_dim + 64 * value_dim + 2176;
            let kernel = format!("attention_any_{name}");
            return self.launch(&kernel, seqs, rows, &tiles, splits, (128, shared));
        };
        let queries = if key_dim > 192 { 32 * key_dim } else { 0 };
        let merged = if splits.leaves_some_whole() { 64 * key_dim + 528 } else { 0 };
        let shared = held + queries + merged;
        let kernel = format!("attention_decode_{name}_{key_dim}");
        self.launch(&kernel, seqs, rows, &tiles, splits, (32, shared))
    }

    /// Launches the kernel, and one that merges where contexts were split.
    fn launch(
        &self,
        kernel: &str,
        seqs: Range<usize>,
        rows: usize,
        tiles: &Tiles,
        splits: Splits,
        (threads, shared): (usize, usize),
    ) -> Result<()> {
        let (spans, value_dim) = (self.arguments.spans as usize, self.shape.value_dim);
        let partials = if splits.count > 1 {
            let count = splits.rows * self.heads * spans * (value_dim + 2);
            Some(output_buffer(count, DType::F32, self.device)?)
        } else {
            None
        };
        let part = |all: &Tensor, more: usize| {
            Address::of(&all.narrow(0, seqs.start, seqs.len() + more)?, DType::U32)
        };
        let arguments = Attention {
            partials: match &partials {
                Some(partials) => Address::to_write(partials, DType::F32)?,
                None => Address::NONE,
            },
            tables: part(&self.tensors.block_tables, 0)?,
            cu_seqlens: part(&self.tensors.cu_seqlens_q, 1)?,
            context_lens: part(&self.tensors.context_lens, 0)?,
            num_seqs: narrow(seqs.len())?,
            queries_per_tile: narrow(tiles.queries)?,
            partial_rows: narrow(splits.rows)?,
            whole_spans: narrow(splits.whole_spans)?,
            ..self.arguments
        };
        let columns = self.shape.kv_heads * tiles.parts;
        let grid = [rows / tiles.queries + seqs.len(), columns, splits.count];
        let launch = Launch { source: &SOURCE, kernel, grid, threads, shared };
        // SAFETY: the step was checked against the cache, and tiles stay within their sequences.
        unsafe { launch.run(self.device, arguments)? };
        if splits.count > 1 {
            let threads = value_dim.next_multiple_of(32).min(256);
            let grid = [rows, self.heads, 1];
            let kernel = "attention_merge";
            let merge = Launch { source: &SOURCE, kernel, grid, threads, shared: 0 };
            // SAFETY: as above; the partial results are those of the same rows.
            unsafe { merge.run(self.device, arguments)? };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_kind_share_a_launch() {
        let few_and_many = [(0..2, true), (2..3, false), (3..4, true)];
        assert_eq!(runs(&[0, 1, 2, 40, 44], &[9, 9, 200, 9]), few_and_many);
        // A few more behind a long prefix that is cached.
        assert_eq!(runs(&[0, 1, 2, 40, 44], &[9, 9, 30_000, 9]), [(0..4, true)]);
        assert_eq!(runs(&[0], &[]), []);
    }

    #[test]
    fn contexts_are_split_where_a_device_would_wait_for_one() {
        let record = 32 * 130 * 4;
        let of = |rows, spans| Splits::of(rows, rows * 8, spans, spans * record);
        // One stream keeps a device busy by all of its spans; its records are the whole of them.
        assert_eq!(of(1, 100), Splits { count: 100, whole_spans: 0, rows: 1 });
        // Enough streams, all short.
        assert_eq!(of(128, 8), Splits::NONE);
        // One of them may be long: it is split, the others are not.
        assert_eq!(of(128, 125), Splits { count: 16, whole_spans: 8, rows: 32 });
        // However long contexts may be, records are bounded.
        for rows in [1, 2, 4, 8, 16, 64, 256] {
            for spans in [1, 8, 64, 512, 4096] {
                let splits = of(rows, spans);
                let bytes = splits.rows * spans * record;
                assert!(bytes <= MOST_RECORDS.max(spans * record), "{rows} {spans}: {bytes}");
                assert!(splits.count <= spans.max(1) && splits.rows <= rows);
            }
        }
    }

    #[test]
    fn large_groups_take_several_tiles() {
        let tiles = |rows, group| {
            let Tiles { queries, parts } = Tiles::of(rows, group);
            (queries, parts)
        };
        assert_eq!(tiles(16, 4), (4, 1));
        assert_eq!(tiles(16, 7), (2, 1));
        assert_eq!(tiles(16, 24), (1, 2));
        assert_eq!(tiles(64, 1), (64, 1));
        assert_eq!(tiles(8, 71), (1, 9));
    }
}
