//! Rows to chosen rows on NVIDIA GPUs, all of them in one launch.

use candle_core::{DType, Result, Tensor};

use crate::cuda::launch::{Address, Launch, Source, kernel_struct, narrow, source};

static SOURCE: Source = source!("put_rows/kernel");

kernel_struct! {
    struct PutRows {
        rows: Address,
        from: Address,
        to: Address,
        width: u32,
    }
}

/// See [`super::put_rows`]; the arguments are checked.
pub(super) fn put_rows(to: &Tensor, rows: &[u32], from: &Tensor) -> Result<()> {
    let device = to.device();
    if rows.is_empty() {
        return Ok(());
    }
    let (indices, from) = (Tensor::new(rows, device)?, from.contiguous()?);
    let arguments = PutRows {
        rows: Address::of(&indices, DType::U32)?,
        from: Address::of(&from, DType::F32)?,
        to: Address::to_write(to, DType::F32)?,
        width: narrow(to.dim(1)?)?,
    };
    let grid = [rows.len(), 1, 1];
    let launch = Launch { source: &SOURCE, kernel: "put_rows", grid, threads: 256, shared: 0 };
    // SAFETY: the rows were checked, and differ, so that no element is written twice.
    unsafe { launch.run(device, arguments) }
}
