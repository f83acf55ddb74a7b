//! Every hot operation in plain candle operations: the oracle of the kernels, and what runs on a
//! device that has no kernel of ours.
//!
//! Nothing here is fast; all of it is short.

use candle_core::{D, DType, Result, Tensor};

use super::KV_BLOCK;
use super::gated::Activation;
use super::paged_attention::{AttentionParams, Ragged};

/// `x [.., K]` times the transpose of `weight [N, K]`, plus `bias [N]`: `[.., N]` in f32.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let weight = weight.to_dtype(DType::F32)?.t()?;
    let y = x.broadcast_matmul(&weight)?;
    match bias {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}

/// Rows `ids [T]` of `matrix [V, D]`: `[T, D]` in f32.
pub fn embed(matrix: &Tensor, ids: &Tensor) -> Result<Tensor> {
    matrix.index_select(ids, 0)?.to_dtype(DType::F32)
}

/// `x / sqrt(mean(x^2) + eps) * weight` over the last dimension.
pub fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
    x.broadcast_div(&(mean + f64::from(eps))?.sqrt()?)?.broadcast_mul(weight)
}

/// Rotates the heads of `x [T, H, D]` by `cos` and `sin`, each `[T, R]` with `2 R <= D`.
pub fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (pairs, head_dim) = (cos.dim(1)?, x.dim(2)?);
    let (cos, sin) = (cos.unsqueeze(1)?, sin.unsqueeze(1)?);
    let (a, b) = (x.narrow(2, 0, pairs)?, x.narrow(2, pairs, pairs)?);
    let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    let rest = x.narrow(2, 2 * pairs, head_dim - 2 * pairs)?;
    Tensor::cat(&[first, second, rest], 2)
}

/// Writes row `i` of `rows [T, H, D]` to slot `slots[i]` of `cache [num_blocks, 32, H, D]`.
pub fn kv_write(cache: &Tensor, rows: &Tensor, slots: &[u32]) -> Result<()> {
    // A view of the same memory: positions in one dimension.
    let flat = cache.flatten(0, 1)?;
    let rows = rows.to_dtype(cache.dtype())?.contiguous()?;
    for (i, slot) in slots.iter().enumerate() {
        flat.slice_set(&rows.narrow(0, i, 1)?, 0, *slot as usize)?;
    }
    Ok(())
}

/// `activation(gate) * up`
pub fn gated(activation: Activation, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    let activated = match activation {
        Activation::Silu => gate.silu()?,
        Activation::GeluTanh => gate.gelu()?,
    };
    activated * up
}

/// Attention of `q [T, H, D]` over the paged cache, one sequence after the other.
pub fn paged_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    ragged: Ragged<'_>,
    params: AttentionParams,
) -> Result<Tensor> {
    let mut outputs = Vec::with_capacity(ragged.context_lens.len());
    for (seq, bounds) in ragged.cu_seqlens_q.windows(2).enumerate() {
        let (first, count) = (bounds[0] as usize, (bounds[1] - bounds[0]) as usize);
        if count == 0 {
            continue;
        }
        let context = ragged.context_lens[seq] as usize;
        let blocks = &ragged.block_tables[seq][..context.div_ceil(KV_BLOCK)];
        let keys = gather(k, blocks, context)?;
        let values = gather(v, blocks, context)?;
        let positions = &ragged.positions[first..first + count];
        outputs.push(attend(&q.narrow(0, first, count)?, &keys, &values, positions, params)?);
    }
    if outputs.is_empty() { q.zeros_like() } else { Tensor::cat(&outputs, 0) }
}

/// The first `context` positions of these blocks: `[context, KVH, D]` in f32.
fn gather(cache: &Tensor, blocks: &[u32], context: usize) -> Result<Tensor> {
    let blocks = Tensor::new(blocks, cache.device())?;
    let gathered = cache.index_select(&blocks, 0)?.flatten(0, 1)?;
    gathered.narrow(0, 0, context)?.to_dtype(DType::F32)
}

/// One sequence: `q [T, H, D]`, keys and values `[context, KVH, D]`.
fn attend(
    q: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    positions: &[u32],
    params: AttentionParams,
) -> Result<Tensor> {
    let (count, heads, head_dim) = q.dims3()?;
    let (context, kv_heads, _) = keys.dims3()?;
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
    let mask = mask(positions, context, params.window, q.device())?;
    let scores = scores.reshape((kv_heads, group, count, context))?.broadcast_add(&mask)?;
    let largest = scores.max_keepdim(D::Minus1)?;
    let weights = scores.broadcast_sub(&largest)?.exp()?;
    let weights = weights.broadcast_div(&weights.sum_keepdim(D::Minus1)?)?;
    let out = weights.reshape((kv_heads, group * count, context))?.matmul(&values)?;
    let out = out.reshape((kv_heads, group, count, head_dim))?.permute((2, 0, 1, 3))?;
    out.reshape((count, heads, head_dim))
}

/// `[T, context]`: 0 where a query sees a position, minus infinity elsewhere.
fn mask(
    positions: &[u32],
    context: usize,
    window: Option<usize>,
    device: &candle_core::Device,
) -> Result<Tensor> {
    let mut mask = Vec::with_capacity(positions.len() * context);
    for position in positions {
        let end = *position as usize + 1;
        let start = end.saturating_sub(window.unwrap_or(end));
        let seen = |j| if (start..end).contains(&j) { 0.0f32 } else { f32::NEG_INFINITY };
        mask.extend((0..context).map(seen));
    }
    Tensor::from_vec(mask, (positions.len(), context), device)
}
