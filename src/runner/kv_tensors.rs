//! The KV cache's memory: two tensors a layer, made once.

use candle_core::{DType, Device, Result, Tensor};

use crate::layers::forward::{BLOCK_SIZE, KvLayer, KvShape};

/// Makes the cache, zeroed: `[num_blocks, BLOCK_SIZE, num_kv_heads, head_dim]` for K and for V.
pub(super) fn allocate(
    shape: KvShape,
    num_blocks: usize,
    dtype: DType,
    device: &Device,
) -> Result<Vec<KvLayer>> {
    let dims = (num_blocks, BLOCK_SIZE, shape.num_kv_heads, shape.head_dim);
    (0..shape.num_layers)
        .map(|_| {
            Ok(KvLayer {
                k: Tensor::zeros(dims, dtype, device)?,
                v: Tensor::zeros(dims, dtype, device)?,
            })
        })
        .collect()
}
