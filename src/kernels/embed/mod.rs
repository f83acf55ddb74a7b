//! Rows of a stored matrix as f32: token ids to hidden states.

use candle_core::{DType, Result, Tensor};

use super::backend::cpu_level;
use super::packed::PackedMatrix;

mod cpu;
#[cfg(test)]
mod tests;

/// Rows `ids` of `matrix [V, D]`, widened exactly: `[ids.len(), D]` in f32 on the CPU.
pub fn embed(matrix: &PackedMatrix, ids: &[u32]) -> Result<Tensor> {
    cpu::embed(cpu_level(), matrix, ids)
}

/// Rows `ids [T]` of `matrix [V, D]`, both on a device: `[T, D]` in f32.
pub fn device_embed(matrix: &Tensor, ids: &Tensor) -> Result<Tensor> {
    matrix.index_select(ids, 0)?.to_dtype(DType::F32)
}
