//! Small checkpoints on disk for the other tests.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};

/// A tensor of `shape` with distinct values that bf16 and f16 hold exactly.
pub(crate) fn counted(shape: &[usize], dtype: DType) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (i % 251) as f32 - 125.0).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
}

/// The tensors of a very small model, one of each dtype.
pub(crate) fn tensors() -> HashMap<String, Tensor> {
    HashMap::from([
        ("model.embed_tokens.weight".to_owned(), counted(&[6, 4], DType::BF16)),
        ("model.layers.0.mlp.up_proj.weight".to_owned(), counted(&[3, 4], DType::F16)),
        ("model.norm.weight".to_owned(), counted(&[4], DType::F32)),
    ])
}

/// The bytes of a valid safetensors file with [`tensors`].
pub(crate) fn safetensors_bytes() -> Vec<u8> {
    safetensors::serialize(tensors(), None).unwrap()
}

/// Writes a valid single-file checkpoint.
pub(crate) fn write(folder: &Path) {
    std::fs::write(folder.join("model.safetensors"), safetensors_bytes()).unwrap();
    std::fs::write(folder.join("config.json"), r#"{"model_type": "llama"}"#).unwrap();
}

/// The bytes of a safetensors file with this header and as many zero bytes of data.
pub(crate) fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

/// All values as f32.
pub(crate) fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}
