//! Rotation, head norms and cache writes in plain candle operations.

use candle_core::{Result, Tensor};

use super::args::{KvCache, Projections, Rotation};
use crate::cache::KV_BLOCK;
use crate::cache::kv_format::KvFormat;
use crate::norm::portable::rms_norm;
use crate::rope::portable::rope;

/// Normalizes and rotates queries and keys, writes keys and values to their slots of the cache
/// and returns the queries.
pub fn kv_write(
    new: Projections<'_>,
    rotation: Rotation<'_>,
    cache: KvCache<'_>,
    slots: &[u32],
) -> Result<Tensor> {
    KvFormat::check_plain(cache.k)?;
    let queries = prepared(new.q, rotation, rotation.norms.map(|norms| norms.query))?;
    let keys = prepared(new.k, rotation, rotation.norms.map(|norms| norms.key))?;
    // [T, KVH, D, 1] and [T, KVH, 1, D]
    let keys = keys.to_dtype(cache.k.dtype())?.unsqueeze(3)?.contiguous()?;
    let values = new.v.to_dtype(cache.v.dtype())?.unsqueeze(2)?.contiguous()?;
    for (i, slot) in slots.iter().enumerate() {
        let (block, offset) = (*slot as usize / KV_BLOCK, *slot as usize % KV_BLOCK);
        cache.k.narrow(0, block, 1)?.slice_set(&keys.narrow(0, i, 1)?, 3, offset)?;
        cache.v.narrow(0, block, 1)?.slice_set(&values.narrow(0, i, 1)?, 2, offset)?;
    }
    Ok(queries)
}

/// Heads `x [T, H, D]`, rotated and, with the scale of a norm, normalized.
pub fn prepared(x: &Tensor, rotation: Rotation<'_>, weight: Option<&Tensor>) -> Result<Tensor> {
    let Rotation { cos, sin, norms } = rotation;
    match (norms, weight) {
        (Some(norms), Some(weight)) if norms.after_rotation => {
            rms_norm(&rope(x, cos, sin)?, weight, norms.eps)
        }
        (Some(norms), Some(weight)) => rope(&rms_norm(x, weight, norms.eps)?, cos, sin),
        _ => rope(x, cos, sin),
    }
}
