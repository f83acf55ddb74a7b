//! Writes new keys or values to their slots in the paged cache, in the cache's dtype.
//!
//! The slot of a token is `block * 32 + offset`; all slots are checked before the first write.

use candle_core::{CpuStorage, DType, InplaceOp2, Layout, Result, Tensor, bail};
use half::{bf16, f16};

use super::cpu::Element;
use super::{KV_BLOCK, portable, storage};

/// Writes row `i` of `rows [T, H, D]` (f32) to slot `slots[i]` of `cache [num_blocks, 32, H, D]`
/// (f32, bf16 or f16).
pub fn kv_write(cache: &Tensor, rows: &Tensor, slots: &[u32]) -> Result<()> {
    check(cache, rows, slots)?;
    if !cache.device().is_cpu() {
        return portable::kv_write(cache, rows, slots);
    }
    cache.inplace_op2(rows, &KvWrite { slots })
}

fn check(cache: &Tensor, rows: &Tensor, slots: &[u32]) -> Result<()> {
    let (num_blocks, block, heads, head_dim) = cache.dims4()?;
    if block != KV_BLOCK {
        bail!("kv_write: blocks of {block} positions, expected {KV_BLOCK}");
    }
    if rows.dims() != [slots.len(), heads, head_dim] {
        bail!(
            "kv_write: rows of shape {:?}, expected {:?}",
            rows.dims(),
            [slots.len(), heads, head_dim]
        );
    }
    let capacity = num_blocks * KV_BLOCK;
    match slots.iter().find(|slot| **slot as usize >= capacity) {
        Some(slot) => bail!("kv_write: slot {slot} of a cache with {capacity} slots"),
        None => Ok(()),
    }
}

struct KvWrite<'a> {
    slots: &'a [u32],
}

impl InplaceOp2 for KvWrite<'_> {
    fn name(&self) -> &'static str {
        "kv_write"
    }

    fn cpu_fwd(
        &self,
        cache: &mut CpuStorage,
        cache_layout: &Layout,
        rows: &CpuStorage,
        rows_layout: &Layout,
    ) -> Result<()> {
        let rows = storage::contiguous::<f32>(self.name(), rows, rows_layout)?;
        let (_, _, heads, head_dim) = cache_layout.shape().dims4()?;
        let width = heads * head_dim;
        let dtype = candle_core::backend::BackendStorage::dtype(cache);
        match dtype {
            DType::F32 => {
                scatter(
                    storage::contiguous_mut::<f32>("kv_write", cache, cache_layout)?,
                    rows,
                    self.slots,
                    width,
                );
            }
            DType::BF16 => {
                scatter(
                    storage::contiguous_mut::<bf16>("kv_write", cache, cache_layout)?,
                    rows,
                    self.slots,
                    width,
                );
            }
            DType::F16 => {
                scatter(
                    storage::contiguous_mut::<f16>("kv_write", cache, cache_layout)?,
                    rows,
                    self.slots,
                    width,
                );
            }
            other => bail!("kv_write: a cache of {other:?}; f32, bf16 and f16 are supported"),
        }
        Ok(())
    }
}

fn scatter<E: Element>(cache: &mut [E], rows: &[f32], slots: &[u32], width: usize) {
    for (row, slot) in rows.chunks_exact(width.max(1)).zip(slots) {
        let start = *slot as usize * width;
        for (to, from) in cache[start..start + width].iter_mut().zip(row) {
            *to = E::from_f32(*from);
        }
    }
}

#[cfg(test)]
mod tests;
