//! From the projections to attention: head norms and rotation of queries and keys, and the new
//! keys and values on their way to the cache, in the cache's format.
//!
//! One pass over the tokens does it all. The slot of a token is `block * 32 + offset`; everything
//! is checked before the first write. Many tokens are shared out to the thread team in runs that
//! write to blocks of their own.

use candle_core::{Result, Tensor, bail};

pub use self::args::{HeadNorms, KvCache, Projections, Rotation};
use super::backend::Backend;
use super::cache::KV_BLOCK;
use super::cache::kv_format::CacheShape;
use super::step::{Indices, NO_SLOT};

mod args;
mod cpu;
mod cuda;
pub mod portable;
#[cfg(test)]
mod tests;
mod tokens;

/// Normalizes and rotates the heads of `q` and `k` and writes token `i`'s key and value to slot
/// `slots[i]` of the cache. Returns the queries, `[T, H, D]`. CUDA kernels take [`NO_SLOT`] too, and
/// write nothing of its token.
///
/// # Errors
///
/// Shapes that don't fit, a slot outside of the cache; nothing is written then.
pub fn kv_write(
    new: Projections<'_>,
    rotation: Rotation<'_>,
    cache: KvCache<'_>,
    slots: Indices<'_>,
) -> Result<Tensor> {
    let (device, backend) = (new.q.device(), Backend::of(new.q.device()));
    let shape = check(new, rotation, cache, slots.host.len())?;
    let may_be_none = backend.is_cuda();
    check_slots(slots.host.iter().filter(|slot| !may_be_none || **slot != NO_SLOT), shape)?;
    match backend {
        Backend::Cpu(level) => cpu::kv_write(level, new, rotation, cache, slots.host, shape),
        Backend::Cuda => cuda::kv_write(new, rotation, cache, shape, &slots.to_device(device)?),
        Backend::Portable => portable::kv_write(new, rotation, cache, slots.host),
    }
}

/// Normalizes and rotates queries `[T, H, D]` alone, for a layer that reads what another one wrote.
///
/// # Errors
///
/// Shapes that don't fit.
pub fn prepare_queries(q: &Tensor, rotation: Rotation<'_>) -> Result<Tensor> {
    let (tokens, _, head_dim) = q.dims3()?;
    rotation.check(tokens, head_dim)?;
    match Backend::of(q.device()) {
        Backend::Cpu(level) => cpu::prepare_queries(level, q, rotation),
        Backend::Cuda => cuda::prepared(q, rotation),
        Backend::Portable => {
            portable::prepared(q, rotation, rotation.norms.map(|norms| norms.query))
        }
    }
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
