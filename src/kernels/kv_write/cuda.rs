//! Rotation, head norms and cache writes on NVIDIA GPUs.

use candle_core::{DType, Result, Tensor, bail};

use super::args::{KvCache, Projections, Rotation};
use crate::cache::kv_format::{CacheShape, KvFormat};
use crate::cuda::launch::{Address, Launch, Source, kernel_struct, narrow, output_buffer, source};

static SOURCE: Source = source!("kv_write/kernel");

/// Heads of one token that a block takes where there are many in all: as many warps as fill a
/// multiprocessor, which has room for few more blocks than it has for such warps.
const HEADS_OF_A_BLOCK: usize = 8;
/// Heads of all tokens from which on there are many.
const MANY_HEADS: usize = 4096;

kernel_struct! {
    struct KvWrite {
        q: Address,
        k: Address,
        v: Address,
        q_stride: u32,
        k_stride: u32,
        v_stride: u32,
        cos: Address,
        sin: Address,
        query_weight: Address,
        key_weight: Address,
        eps: f32,
        norm_after_rotation: u32,
        queries: Address,
        keys: Address,
        values: Address,
        slots: Address,
        heads: u32,
        kv_heads: u32,
        key_dim: u32,
        value_dim: u32,
        pairs: u32,
        format: u32,
    }
}

/// Writes the keys and values of `new` to `slots [T]` (u32) of a cache of `shape`, all ones being
/// no slot; returns the queries.
pub(super) fn kv_write(
    new: Projections<'_>,
    rotation: Rotation<'_>,
    cache: KvCache<'_>,
    shape: CacheShape,
    slots: &Tensor,
) -> Result<Tensor> {
    let (tokens, heads, _) = new.q.dims3()?;
    if slots.dims() != [tokens] {
        bail!("kv_write: {:?} slots for {tokens} tokens", slots.dims());
    }
    let dtype = shape.format.dtype();
    let (k, k_stride) = Address::of_rows(new.k)?;
    let (v, v_stride) = Address::of_rows(new.v)?;
    let CacheShape { kv_heads, key_dim, value_dim, .. } = shape;
    let (base, queries) = queries(new.q, rotation)?;
    let arguments = KvWrite {
        k,
        v,
        k_stride,
        v_stride,
        keys: Address::to_write(cache.k, dtype)?,
        values: Address::to_write(cache.v, dtype)?,
        slots: Address::of(slots, DType::U32)?,
        kv_heads: narrow(kv_heads)?,
        value_dim: narrow(value_dim)?,
        format: match shape.format {
            KvFormat::F32 => 0,
            KvFormat::F16 => 1,
            KvFormat::Bf16 => 2,
            KvFormat::Q8_0 => 3,
            KvFormat::Fp8 => 4,
        },
        ..base
    };
    let launch = launch([tokens, heads + 2 * kv_heads], key_dim.max(value_dim));
    // SAFETY: the caller has checked the shapes, and that slots are inside of the cache.
    unsafe { launch.run(new.q.device(), arguments)? };
    Ok(queries)
}

/// Heads `q [T, H, D]`, rotated and, if there are norms, normalized as queries.
pub(super) fn prepared(q: &Tensor, rotation: Rotation<'_>) -> Result<Tensor> {
    let (tokens, heads, head_dim) = q.dims3()?;
    let (arguments, queries) = queries(q, rotation)?;
    // SAFETY: the caller has checked the shapes; the grid has no head of keys.
    unsafe { launch([tokens, heads], head_dim).run(q.device(), arguments)? };
    Ok(queries)
}

fn launch<'a>([tokens, heads]: [usize; 2], longest_head: usize) -> Launch<'a> {
    let warps = if tokens * heads >= MANY_HEADS { HEADS_OF_A_BLOCK } else { 1 };
    let grid = [tokens, heads.div_ceil(warps), 1];
    let shared = warps * longest_head * size_of::<f32>();
    Launch { source: &SOURCE, kernel: "kv_write", grid, threads: 32 * warps, shared }
}

/// The arguments that concern queries, and the output buffer of these.
fn queries(q: &Tensor, rotation: Rotation<'_>) -> Result<(KvWrite, Tensor)> {
    let (tokens, heads, head_dim) = q.dims3()?;
    let queries = output_buffer((tokens, heads, head_dim), DType::F32, q.device())?;
    let (address, q_stride) = Address::of_rows(q)?;
    let norms = rotation.norms;
    let weight = |weight: Option<&Tensor>| Address::of_some(weight, DType::F32);
    let arguments = KvWrite {
        q: address,
        k: Address::NONE,
        v: Address::NONE,
        q_stride,
        k_stride: 0,
        v_stride: 0,
        cos: Address::of(rotation.cos, DType::F32)?,
        sin: Address::of(rotation.sin, DType::F32)?,
        query_weight: weight(norms.map(|norms| norms.query))?,
        key_weight: weight(norms.map(|norms| norms.key))?,
        eps: norms.map_or(0.0, |norms| norms.eps),
        norm_after_rotation: u32::from(norms.is_some_and(|norms| norms.after_rotation)),
        queries: Address::to_write(&queries, DType::F32)?,
        keys: Address::NONE,
        values: Address::NONE,
        slots: Address::NONE,
        heads: narrow(heads)?,
        kv_heads: 0,
        key_dim: narrow(head_dim)?,
        value_dim: 0,
        pairs: narrow(rotation.cos.dim(1)?)?,
        format: 0,
    };
    Ok((arguments, queries))
}
