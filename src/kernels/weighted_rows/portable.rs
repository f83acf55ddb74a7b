//! Weighted sums of rows in plain candle operations.

use candle_core::{Result, Tensor};

use super::args::WeightedRow;

/// Sums of `count` weighted rows of `x [N, D]` each, without a residual.
pub(super) fn weighted_rows(x: &Tensor, weighted: &[WeightedRow], count: usize) -> Result<Tensor> {
    let rows = weighted.iter().map(|one| u32::try_from(one.row));
    let rows =
        rows.collect::<std::result::Result<Vec<_>, _>>().map_err(candle_core::Error::wrap)?;
    let weights: Vec<f32> = weighted.iter().map(|one| one.weight).collect();
    let sums = weighted.len() / count;
    let weights = Tensor::from_vec(weights, (sums, count, 1), x.device())?;
    let picked = x.index_select(&Tensor::new(rows, x.device())?, 0)?;
    picked.reshape((sums, count, x.dim(1)?))?.broadcast_mul(&weights)?.sum(1)
}
