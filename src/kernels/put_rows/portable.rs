//! Rows of one matrix to rows of another, in plain candle operations.

use candle_core::{Result, Tensor};

/// Overwrites rows of `to`, with checked arguments.
pub(super) fn put_rows(to: &Tensor, rows: &[u32], from: &Tensor) -> Result<()> {
    for (i, row) in rows.iter().enumerate() {
        to.slice_set(&from.narrow(0, i, 1)?, 0, *row as usize)?;
    }
    Ok(())
}
