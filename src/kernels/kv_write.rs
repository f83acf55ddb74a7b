//! From the projections to attention: head norms and rotation of queries and keys, and the new
//! keys and values on their way to the cache, in the cache's format.
//!
//! One pass over the tokens does it all. The slot of a token is `block * 32 + offset`; everything
//! is checked before the first write. Many tokens are shared out to the thread team in runs that
//! write to blocks of their own.

use candle_core::{Result, Tensor, bail};
use float8::F8E4M3;
use half::{bf16, f16};

use super::backend::cpu_level;
use super::cpu::Level;
use super::step_tensors::{NO_SLOT, Numbers};
use super::storage::{self, Rows};
use super::{cuda, portable};
use crate::kernels::cache::KV_BLOCK;
use crate::kernels::cache::kv_format::{CacheShape, KvFormat};

mod tokens;

use tokens::{Angles, Norm, Queries, Tokens};

const NAME: &str = "kv_write";

/// The outputs of a layer's projections, in f32.
#[derive(Clone, Copy, Debug)]
pub struct Projections<'a> {
    /// `[T, H, D]`
    pub q: &'a Tensor,
    /// `[T, KVH, D]`
    pub k: &'a Tensor,
    /// `[T, KVH, DV]`
    pub v: &'a Tensor,
}

/// What happens to queries and keys.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// `[T, R]` with `2 R <= D`: cosines of the angles of a token's pairs.
    pub cos: &'a Tensor,
    /// `[T, R]`: sines.
    pub sin: &'a Tensor,
    /// Normalization of each head before or after the rotation.
    pub norms: Option<HeadNorms<'a>>,
}

/// Root mean square norms of heads.
#[derive(Clone, Copy, Debug)]
pub struct HeadNorms<'a> {
    /// `[D]`: scale of query heads.
    pub query: &'a Tensor,
    /// `[D]`: scale of key heads.
    pub key: &'a Tensor,
    /// Added to the mean square.
    pub eps: f32,
    /// Whether heads are rotated first.
    pub after_rotation: bool,
}

/// A layer's cache, see [`crate::kernels::cache::kv_format`].
#[derive(Clone, Copy, Debug)]
pub struct KvCache<'a> {
    /// Keys.
    pub k: &'a Tensor,
    /// Values; not the same tensor as the keys.
    pub v: &'a Tensor,
}

/// Normalizes and rotates the heads of `q` and `k` and writes token `i`'s key and value to slot
/// `slots[i]` of the cache. Returns the queries, `[T, H, D]`.
///
/// # Errors
///
/// Shapes that don't fit, a slot outside of the cache; nothing is written then.
pub fn kv_write(
    new: Projections<'_>,
    rotation: Rotation<'_>,
    cache: KvCache<'_>,
    slots: Numbers<'_>,
) -> Result<Tensor> {
    let device = new.q.device();
    if cuda::on(device) {
        let shape = check(new, rotation, cache, slots.host.len())?;
        check_slots(slots.host.iter().filter(|slot| **slot != NO_SLOT), shape)?;
        return cuda::rope::kv_write(new, rotation, cache, shape, &slots.to_device(device)?);
    }
    let slots = slots.host;
    let shape = check(new, rotation, cache, slots.len())?;
    check_slots(slots.iter(), shape)?;
    if portable::on(device) {
        return portable::kv_write(new, rotation, cache, slots);
    }
    kv_write_at(cpu_level(), new, rotation, cache, slots, shape)
}

/// The same of queries `[T, H, D]` alone, for a layer that reads what another one wrote.
///
/// # Errors
///
/// Shapes that don't fit.
pub fn prepare_queries(q: &Tensor, rotation: Rotation<'_>) -> Result<Tensor> {
    let (tokens, heads, head_dim) = q.dims3()?;
    rotation.check(tokens, head_dim)?;
    if cuda::on(q.device()) {
        return cuda::rope::prepared(q, rotation);
    }
    if portable::on(q.device()) {
        return portable::prepared(q, rotation, rotation.norms.map(|norms| norms.query));
    }
    let mut queries = Vec::new();
    storage::read(NAME, q, |q, layout| {
        let q = Rows::of(NAME, q, layout)?;
        with_angles(rotation, |angles| {
            queries = Queries { level: cpu_level(), q, angles, heads, head_dim }.run(tokens);
            Ok(())
        })
    })?;
    Tensor::from_vec(queries, (tokens, heads, head_dim), q.device())
}

impl Rotation<'_> {
    fn check(&self, tokens: usize, head_dim: usize) -> Result<()> {
        let (angle_rows, pairs) = self.cos.dims2()?;
        if self.sin.dims() != self.cos.dims() || angle_rows != tokens || 2 * pairs > head_dim {
            bail!(
                "kv_write: cos {:?} and sin {:?} don't fit {tokens} tokens with heads of {head_dim}",
                self.cos.dims(),
                self.sin.dims()
            );
        }
        match self.norms {
            Some(norms) if norms.query.dims() != [head_dim] || norms.key.dims() != [head_dim] => {
                bail!(
                    "kv_write: head norms of {:?} and {:?} for heads of {head_dim}",
                    norms.query.dims(),
                    norms.key.dims()
                )
            }
            _ => Ok(()),
        }
    }
}

fn check(
    new: Projections<'_>,
    rotation: Rotation<'_>,
    cache: KvCache<'_>,
    slots: usize,
) -> Result<CacheShape> {
    let (tokens, heads, head_dim) = new.q.dims3()?;
    let shape = CacheShape::of(cache.k, cache.v, head_dim)?;
    let keys = [slots, shape.kv_heads, head_dim];
    let values = [slots, shape.kv_heads, shape.value_dim];
    if tokens != slots || heads == 0 || new.k.dims() != keys || new.v.dims() != values {
        bail!(
            "kv_write: queries {:?}, keys {:?} and values {:?}, expected {keys:?} and {values:?}",
            new.q.dims(),
            new.k.dims(),
            new.v.dims()
        );
    }
    rotation.check(tokens, head_dim)?;
    Ok(shape)
}

fn check_slots<'a>(mut slots: impl Iterator<Item = &'a u32>, shape: CacheShape) -> Result<()> {
    let capacity = shape.num_blocks * KV_BLOCK;
    match slots.find(|slot| **slot as usize >= capacity) {
        Some(slot) => bail!("kv_write: slot {slot} of a cache with {capacity} slots"),
        None => Ok(()),
    }
}

fn kv_write_at(
    level: Level,
    new: Projections<'_>,
    rotation: Rotation<'_>,
    cache: KvCache<'_>,
    slots: &[u32],
    shape: CacheShape,
) -> Result<Tensor> {
    let (tokens, heads, head_dim) = new.q.dims3()?;
    let mut queries = Vec::new();
    with_rows(new, |q, k, v| {
        with_angles(rotation, |angles| {
            let tokens = Tokens { level, q, k, v, angles, heads, shape, slots };
            queries = match shape.format {
                KvFormat::F32 => tokens.apply::<f32>(cache)?,
                KvFormat::F16 => tokens.apply::<f16>(cache)?,
                KvFormat::Bf16 => tokens.apply::<bf16>(cache)?,
                KvFormat::Fp8 => tokens.apply::<F8E4M3>(cache)?,
                KvFormat::Q8_0 => tokens.apply::<u8>(cache)?,
            };
            Ok(())
        })
    })?;
    Tensor::from_vec(queries, (tokens, heads, head_dim), new.q.device())
}

fn with_rows(
    new: Projections<'_>,
    work: impl FnOnce(Rows<'_>, Rows<'_>, Rows<'_>) -> Result<()>,
) -> Result<()> {
    storage::read(NAME, new.q, |q, q_layout| {
        storage::read(NAME, new.k, |k, k_layout| {
            storage::read(NAME, new.v, |v, v_layout| {
                work(
                    Rows::of(NAME, q, q_layout)?,
                    Rows::of(NAME, k, k_layout)?,
                    Rows::of(NAME, v, v_layout)?,
                )
            })
        })
    })
}

fn with_angles(rotation: Rotation<'_>, work: impl FnOnce(Angles<'_>) -> Result<()>) -> Result<()> {
    storage::read(NAME, rotation.cos, |cos, cos_layout| {
        storage::read(NAME, rotation.sin, |sin, sin_layout| {
            let (cos, sin) = (Rows::of(NAME, cos, cos_layout)?, Rows::of(NAME, sin, sin_layout)?);
            let Some(norms) = rotation.norms else {
                return work(Angles { cos, sin, norms: None });
            };
            storage::read(NAME, norms.query, |query, query_layout| {
                storage::read(NAME, norms.key, |key, key_layout| {
                    let query = storage::contiguous::<f32>(NAME, query, query_layout)?;
                    let key = storage::contiguous::<f32>(NAME, key, key_layout)?;
                    let (eps, after_rotation) = (norms.eps, norms.after_rotation);
                    let query = Norm { weight: query, eps, after_rotation };
                    let key = Norm { weight: key, ..query };
                    work(Angles { cos, sin, norms: Some((query, key)) })
                })
            })
        })
    })
}

#[cfg(test)]
mod tests;
