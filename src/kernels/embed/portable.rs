//! Rows of a matrix in plain candle operations.

use candle_core::{DType, Result, Tensor};

/// Rows `ids [T]` of `matrix [V, D]`: `[T, D]` in f32.
pub(super) fn embed(matrix: &Tensor, ids: &Tensor) -> Result<Tensor> {
    matrix.index_select(ids, 0)?.to_dtype(DType::F32)
}
