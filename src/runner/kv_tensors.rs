//! The KV cache's memory: two tensors a layer, made once.

use candle_core::{DType, Device, Result, Tensor};
use half::vec::HalfBitsVecExt;
use half::{bf16, f16};

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
        .map(|_| Ok(KvLayer { k: zeros(dims, dtype, device)?, v: zeros(dims, dtype, device)? }))
        .collect()
}

/// Zeros that on the CPU take no memory before they are written: a vector of integer zeros is
/// made of untouched pages, one of half-precision zeros is filled element by element.
fn zeros(dims: (usize, usize, usize, usize), dtype: DType, device: &Device) -> Result<Tensor> {
    let count = dims.0 * dims.1 * dims.2 * dims.3;
    match (device, dtype) {
        (Device::Cpu, DType::BF16) => {
            Tensor::from_vec(vec![0_u16; count].reinterpret_into::<bf16>(), dims, device)
        }
        (Device::Cpu, DType::F16) => {
            Tensor::from_vec(vec![0_u16; count].reinterpret_into::<f16>(), dims, device)
        }
        _ => Tensor::zeros(dims, dtype, device),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_starts_at_zero() {
        let shape = KvShape { num_layers: 2, num_kv_heads: 3, head_dim: 4 };
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let layers = allocate(shape, 5, dtype, &Device::Cpu).unwrap();
            assert_eq!(layers.len(), 2);
            for tensor in layers.iter().flat_map(|layer| [&layer.k, &layer.v]) {
                assert_eq!((tensor.dims(), tensor.dtype()), (&[5, BLOCK_SIZE, 3, 4][..], dtype));
                let sum = tensor.to_dtype(DType::F32).unwrap().sum_all().unwrap();
                assert_eq!(sum.to_scalar::<f32>().unwrap().to_bits(), 0);
            }
        }
    }
}
