//! The tensors of the KV cache: two of blocks for each layer, allocated once.

use candle_core::{Device, Result, Tensor, bail};
use safetensors::View;

use crate::layers::forward::{KvFormat, KvHeads, KvLayer, KvShape};

/// Allocates the cache, zeroed, in the shapes that the format needs.
pub(super) fn allocate(
    shape: &KvShape,
    num_blocks: usize,
    format: KvFormat,
    device: &Device,
) -> Result<Vec<KvLayer>> {
    let layer =
        |heads: &KvHeads| heads.layer(num_blocks, format, |dims| format.zeros(dims, device));
    shape.layers.iter().map(layer).collect()
}

/// Copies rows of each tensor, each `(from, to)`; no row is both.
pub(super) fn copy_rows<'a>(
    tensors: impl Iterator<Item = &'a Tensor>,
    rows: &[(u32, u32)],
) -> Result<()> {
    for tensor in tensors {
        for (from, to) in rows {
            // `Tensor::copy` of a view would copy all of its storage.
            let content = tensor.narrow(0, *from as usize, 1)?.force_contiguous()?;
            tensor.narrow(0, *to as usize, 1)?.slice_set(&content, 0, 0)?;
        }
    }
    Ok(())
}

/// Copies rows of tensors to rows of others with the same shapes, in order, each `(from, to)`.
pub(super) fn copy_rows_between(from: &[Tensor], to: &[Tensor], rows: &[(u32, u32)]) -> Result<()> {
    for (source, target) in from.iter().zip(to) {
        for (from, to) in rows {
            let row = source.narrow(0, *from as usize, 1)?;
            target.narrow(0, *to as usize, 1)?.slice_set(&row, 0, 0)?;
        }
    }
    Ok(())
}

/// A row of each tensor as bytes in host memory, one after the other.
pub(super) fn read_row<'a>(tensors: impl Iterator<Item = &'a Tensor>, row: u32) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for tensor in tensors {
        // The copy of a view to another device would copy all of its storage.
        let row = tensor.narrow(0, row as usize, 1)?.force_contiguous()?;
        bytes.extend_from_slice(&row.to_device(&Device::Cpu)?.data());
    }
    Ok(bytes)
}

/// Replaces a row of each tensor by what [`read_row`] gave.
pub(super) fn write_row<'a>(
    tensors: impl Iterator<Item = &'a Tensor> + Clone,
    row: u32,
    mut bytes: &[u8],
) -> Result<()> {
    let size = |tensor: &Tensor| {
        let elements: usize = tensor.dims()[1..].iter().product();
        elements * tensor.dtype().size_in_bytes()
    };
    let expected: usize = tensors.clone().map(size).sum();
    if bytes.len() != expected {
        bail!("a row has {expected} bytes, these are {}", bytes.len());
    }
    for tensor in tensors {
        let (own, rest) = bytes.split_at(size(tensor));
        let dims = [&[1], &tensor.dims()[1..]].concat();
        let content = Tensor::from_raw_buffer(own, tensor.dtype(), &dims, tensor.device())?;
        tensor.narrow(0, row as usize, 1)?.slice_set(&content, 0, 0)?;
        bytes = rest;
    }
    Ok(())
}

/// The tensors of all layers.
pub(super) fn tensors(kv: &[KvLayer]) -> impl Iterator<Item = &Tensor> + Clone {
    kv.iter().flat_map(|layer| [&layer.k, &layer.v])
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;

    #[test]
    fn every_format_starts_at_zero_and_takes_the_bytes_that_were_planned() {
        let shape = KvShape { layers: vec![KvHeads::new(3, 64); 2], ..KvShape::default() };
        let plain = [KvFormat::F32, KvFormat::F16, KvFormat::Bf16];
        for format in plain.into_iter().chain([KvFormat::Fp8, KvFormat::Q8_0]) {
            let layers = allocate(&shape, 5, format, &Device::Cpu).unwrap();
            assert_eq!(layers.len(), 2);
            let mut bytes = 0;
            for tensor in tensors(&layers) {
                assert_eq!(tensor.dtype(), format.dtype());
                bytes += tensor.elem_count() * format.dtype().size_in_bytes();
                let sum = tensor.to_dtype(DType::F32).unwrap().sum_all().unwrap();
                assert_eq!(sum.to_scalar::<f32>().unwrap().to_bits(), 0);
            }
            assert_eq!(bytes, 5 * shape.block_bytes(format));
            let per_position = 2 * 2 * 3 * 64;
            assert_eq!(
                bytes * 32 / (5 * 32 * per_position),
                match format {
                    KvFormat::F32 => 128,
                    KvFormat::F16 | KvFormat::Bf16 => 64,
                    KvFormat::Fp8 => 32,
                    KvFormat::Q8_0 => 34,
                }
            );
        }
    }

    #[test]
    fn rows_are_copied_in_order_and_others_stay() {
        let states: Vec<Tensor> = [2, 3]
            .map(|width| {
                let numbers = Tensor::arange(0f32, 4.0 * 3.0, &Device::Cpu).unwrap();
                numbers.narrow(0, 0, 4 * width).unwrap().reshape((4, width)).unwrap()
            })
            .to_vec();
        let kept: Vec<Tensor> = states.iter().map(|state| state.zeros_like().unwrap()).collect();
        copy_rows_between(&states, &kept, &[(1, 0), (2, 3), (3, 0)]).unwrap();
        let rows = |tensor: &Tensor| tensor.to_vec2::<f32>().unwrap();
        for (state, kept) in states.iter().zip(&kept) {
            let (state, kept) = (rows(state), rows(kept));
            let nothing = vec![0.0; state[0].len()];
            assert_eq!(kept, [state[3].clone(), nothing.clone(), nothing, state[2].clone()]);
        }
    }

    #[test]
    fn bytes_of_a_row_make_an_equal_row_and_others_stay() {
        let shape = KvShape { layers: vec![KvHeads::new(2, 32); 2], ..KvShape::default() };
        let formats = [KvFormat::F32, KvFormat::F16, KvFormat::Bf16, KvFormat::Fp8, KvFormat::Q8_0];
        for format in formats {
            let kv = allocate(&shape, 4, format, &Device::Cpu).unwrap();
            for (tensor, number) in tensors(&kv).zip([1.0, 2.0, 3.0, 4.0]) {
                let block = tensor.narrow(0, 1, 1).unwrap();
                let ones = Tensor::ones(block.dims(), DType::F32, &Device::Cpu).unwrap();
                let numbers = (ones * number).unwrap().to_dtype(tensor.dtype());
                block.slice_set(&numbers.unwrap(), 0, 0).unwrap();
            }
            let rows = |row| read_row(tensors(&kv), row).unwrap();
            let (nothing, written) = (rows(0), rows(1));
            assert_eq!(written.len(), shape.block_bytes(format));
            assert_ne!(written, nothing);
            write_row(tensors(&kv), 2, &written).unwrap();
            assert_eq!(
                [rows(0), rows(1), rows(2), rows(3)],
                [&nothing, &written, &written, &nothing].map(Clone::clone)
            );
            assert!(write_row(tensors(&kv), 2, &written[1..]).is_err(), "too short");
        }
    }

    #[test]
    fn a_copied_block_is_equal_and_others_stay() {
        let shape = KvShape { layers: vec![KvHeads::new(2, 32)], ..KvShape::default() };
        for format in [KvFormat::Bf16, KvFormat::Fp8, KvFormat::Q8_0] {
            let kv = allocate(&shape, 4, format, &Device::Cpu).unwrap();
            for cache in [&kv[0].k, &kv[0].v] {
                let block = cache.narrow(0, 1, 1).unwrap();
                block.slice_set(&block.ones_like().unwrap(), 0, 0).unwrap();
            }
            copy_rows(tensors(&kv), &[(1, 3)]).unwrap();
            for cache in [&kv[0].k, &kv[0].v] {
                let sum = |block| {
                    let block = cache.narrow(0, block, 1).unwrap().to_dtype(DType::F32).unwrap();
                    block.mean_all().unwrap().to_scalar::<f32>().unwrap()
                };
                let sums = [sum(0), sum(1), sum(2), sum(3)];
                assert!(sums.iter().zip([0.0, 1.0, 0.0, 1.0]).all(|(a, b)| (a - b).abs() < 1e-6));
            }
        }
    }
}
