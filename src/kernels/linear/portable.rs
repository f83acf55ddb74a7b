//! Products in plain candle operations.

use candle_core::{DType, Result, Tensor};

/// `x [.., K]` times the transpose of `weight [N, K]`, plus `bias [N]`: `[.., N]` in f32.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let weight = weight.to_dtype(DType::F32)?.t()?;
    let y = x.broadcast_matmul(&weight)?;
    match bias {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}
