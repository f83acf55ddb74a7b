//! Attention in plain candle operations.

use candle_core::{D, DType, Device, Result, Tensor};

use super::args::{AttentionParams, PerHead, QueryPositions, Visible};
#[cfg(feature = "metal")]
use super::metal;
use crate::cache::KV_BLOCK;
use crate::cache::kv_format::KvFormat;
use crate::floats::Floats;
use crate::step::Step;

/// Attention of `q [T, H, D]` over the paged cache, one sequence after the other.
pub fn paged_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    step: &Step,
    params: AttentionParams,
    per_head: PerHead<'_>,
) -> Result<Tensor> {
    KvFormat::check_plain(k)?;
    let mut outputs = Vec::with_capacity(step.context_lens.len());
    for (seq, bounds) in step.cu_seqlens_q.windows(2).enumerate() {
        let (first, count) = (bounds[0] as usize, (bounds[1] - bounds[0]) as usize);
        if count == 0 {
            continue;
        }
        let context = step.context_lens[seq] as usize;
        let blocks = &step.block_tables[seq][..context.div_ceil(KV_BLOCK)];
        let keys = gather(k, blocks, context, (0, 3, 1, 2))?;
        let values = gather(v, blocks, context, (0, 2, 1, 3))?;
        let positions = QueryPositions::of(step, first..first + count);
        let q = q.narrow(0, first, count)?;
        outputs.push(attend(&q, &keys, &values, positions, params, per_head)?);
    }
    if outputs.is_empty() {
        let (rows, heads, _) = q.dims3()?;
        return Tensor::zeros((rows, heads, v.dim(3)?), DType::F32, q.device());
    }
    Tensor::cat(&outputs, 0)
}

/// The first `context` positions of these blocks, `order` being their dimensions as
/// `[num_blocks, 32, KVH, D]`: `[context, KVH, D]` in f32.
fn gather(
    cache: &Tensor,
    blocks: &[u32],
    context: usize,
    order: (usize, usize, usize, usize),
) -> Result<Tensor> {
    let blocks = Tensor::new(blocks, cache.device())?;
    let gathered = cache.index_select(&blocks, 0)?.permute(order)?.contiguous()?;
    gathered.flatten(0, 1)?.narrow(0, 0, context)?.to_dtype(DType::F32)
}

/// One sequence: `q [T, H, D]`, keys `[context, KVH, D]`, values `[context, KVH, DV]`.
pub(super) fn attend(
    q: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    positions: QueryPositions<'_>,
    params: AttentionParams,
    per_head: PerHead<'_>,
) -> Result<Tensor> {
    #[cfg(feature = "metal")]
    if q.device().is_metal()
        && let Some(positions) = positions.alike()
        && let Some(out) =
            metal::attend(candle_nn::ops::sdpa, q, [keys, values], positions, params, per_head)?
    {
        return Ok(out);
    }
    let (count, heads, head_dim) = q.dims3()?;
    let (context, kv_heads, value_dim) = values.dims3()?;
    let group = heads / kv_heads;
    // [KVH, group * T, D]
    let q = q.reshape((count, kv_heads, group, head_dim))?.permute((1, 2, 0, 3))?;
    let q = q.reshape((kv_heads, group * count, head_dim))?;
    let keys = keys.permute((1, 2, 0))?.contiguous()?;
    let values = values.transpose(0, 1)?.contiguous()?;
    let mut scores = (q.matmul(&keys)? * f64::from(params.scale))?;
    if let Some(cap) = params.softcap {
        let cap = f64::from(cap);
        scores = ((scores / cap)?.tanh()? * cap)?;
    }
    let mask = mask(positions, context, params, q.device())?;
    let mut scores = scores.reshape((kv_heads, group, count, context))?;
    let each_head = |numbers: &Floats| numbers.tensor.reshape((kv_heads, group, 1, 1));
    if let Some(slopes) = per_head.slopes {
        let distances = distances(positions, context, q.device())?;
        scores = (scores - each_head(slopes)?.broadcast_mul(&distances)?)?;
    }
    let scores = scores.broadcast_add(&mask)?;
    let mut largest = scores.max_keepdim(D::Minus1)?;
    let sinks = per_head.sinks.map(each_head).transpose()?;
    if let Some(sinks) = &sinks {
        largest = largest.broadcast_maximum(sinks)?;
    }
    let weights = scores.broadcast_sub(&largest)?.exp()?;
    let mut total = weights.sum_keepdim(D::Minus1)?;
    if let Some(sinks) = &sinks {
        total = (total + sinks.broadcast_sub(&largest)?.exp()?)?;
    }
    let weights = weights.broadcast_div(&total)?;
    let out = weights.reshape((kv_heads, group * count, context))?.matmul(&values)?;
    let out = out.reshape((kv_heads, group, count, value_dim))?.permute((2, 0, 1, 3))?;
    out.reshape((count, heads, value_dim))
}

/// `[T, context]`: how far each position is from each query.
fn distances(positions: QueryPositions<'_>, context: usize, device: &Device) -> Result<Tensor> {
    let mut distances = Vec::with_capacity(positions.len() * context);
    for query in 0..positions.len() {
        let own = positions.position(query) as usize;
        #[expect(clippy::cast_precision_loss, reason = "contexts are below 2^24")]
        distances.extend((0..context).map(|j| own.abs_diff(j) as f32));
    }
    Tensor::from_vec(distances, (positions.len(), context), device)
}

/// `[T, context]`: 0 where a query sees a position, minus infinity elsewhere.
fn mask(
    positions: QueryPositions<'_>,
    context: usize,
    params: AttentionParams,
    device: &Device,
) -> Result<Tensor> {
    let mut mask = Vec::with_capacity(positions.len() * context);
    for query in 0..positions.len() {
        let Visible { start, end } = positions.visible(query, context, params);
        let seen = start..end;
        let seen = |j| if seen.contains(&j) { 0.0f32 } else { f32::NEG_INFINITY };
        mask.extend((0..context).map(seen));
    }
    Tensor::from_vec(mask, (positions.len(), context), device)
}
