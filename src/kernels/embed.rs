//! Rows of a stored matrix as f32: token ids to hidden states.

use candle_core::{Device, Result, Tensor, bail};

use super::packed::PackedMatrix;

/// Rows `ids` of `matrix [V, D]`, widened exactly: `[ids.len(), D]` in f32 on the CPU.
pub fn embed(matrix: &PackedMatrix, ids: &[u32]) -> Result<Tensor> {
    let (rows, width) = (matrix.rows(), matrix.columns());
    if let Some(id) = ids.iter().find(|id| **id as usize >= rows) {
        bail!("embed: token id {id} is outside of a vocabulary of {rows}");
    }
    let mut out = vec![0.0; ids.len() * width];
    for (id, out) in ids.iter().zip(out.chunks_exact_mut(width.max(1))) {
        matrix.rows_at(*id as usize, 1).widen(out);
    }
    Tensor::from_vec(out, (ids.len(), width), &Device::Cpu)
}

#[cfg(test)]
mod tests;
