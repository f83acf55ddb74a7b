//! Every hot operation in plain candle operations: the oracle of the kernels, and what runs on a
//! device that has no kernel of ours, or anywhere if `SCONCE_KERNELS` is `portable`.
//!
//! Nothing here is fast; all of it is short. Sums may be taken in another order when there are
//! more rows, so what is computed beside a sequence may show in the last bits.

use candle_core::{DType, Device, Result, Tensor};

use super::backend::Backend;
use super::weighted_rows::Pick;

mod delta_rule;
mod short_conv;
mod state_space;

pub(super) use delta_rule::delta_rule;
pub(super) use short_conv::short_conv;
pub(super) use state_space::state_space;

/// Whether operations on tensors of this device are these.
pub fn on(device: &Device) -> bool {
    !matches!(Backend::of(device), Backend::Cpu(_))
}

/// `x [.., K]` times the transpose of `weight [N, K]`, plus `bias [N]`: `[.., N]` in f32.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let weight = weight.to_dtype(DType::F32)?.t()?;
    let y = x.broadcast_matmul(&weight)?;
    match bias {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}

/// Rows `ids [T]` of `matrix [V, D]`: `[T, D]` in f32.
pub fn embed(matrix: &Tensor, ids: &Tensor) -> Result<Tensor> {
    matrix.index_select(ids, 0)?.to_dtype(DType::F32)
}

/// Sums of `count` weighted rows of `x [N, D]` each.
pub fn weighted_rows(x: &Tensor, picks: &[Pick], count: usize) -> Result<Tensor> {
    let rows = picks.iter().map(|pick| u32::try_from(pick.row));
    let rows =
        rows.collect::<std::result::Result<Vec<_>, _>>().map_err(candle_core::Error::wrap)?;
    let weights: Vec<f32> = picks.iter().map(|pick| pick.weight).collect();
    let sums = picks.len() / count;
    let weights = Tensor::from_vec(weights, (sums, count, 1), x.device())?;
    let picked = x.index_select(&Tensor::new(rows, x.device())?, 0)?;
    picked.reshape((sums, count, x.dim(1)?))?.broadcast_mul(&weights)?.sum(1)
}
