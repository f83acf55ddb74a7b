//! Rotation of heads in plain candle operations.

use candle_core::{Result, Tensor};

/// Rotates the heads of `x [T, H, D]` by `cos` and `sin`, each `[T, R]` with `2 R <= D`.
pub(crate) fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (pairs, head_dim) = (cos.dim(1)?, x.dim(2)?);
    let (cos, sin) = (cos.unsqueeze(1)?, sin.unsqueeze(1)?);
    let (a, b) = (x.narrow(2, 0, pairs)?, x.narrow(2, pairs, pairs)?);
    let first = (a.broadcast_mul(&cos)? - b.broadcast_mul(&sin)?)?;
    let second = (b.broadcast_mul(&cos)? + a.broadcast_mul(&sin)?)?;
    let rest = x.narrow(2, 2 * pairs, head_dim - 2 * pairs)?;
    Tensor::cat(&[first, second, rest], 2)
}
