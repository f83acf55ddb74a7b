//! Rows of one matrix to rows of another, on the CPU.

use candle_core::{CpuStorage, InplaceOp2, Layout, Result, Tensor, bail};

use crate::kernels::storage;

/// Overwrites rows of `to`, with checked arguments.
pub(super) fn put_rows(to: &Tensor, rows: &[u32], from: &Tensor) -> Result<()> {
    to.inplace_op2(from, &PutRows { rows, width: to.dim(1)? })
}

struct PutRows<'a> {
    rows: &'a [u32],
    width: usize,
}

impl InplaceOp2 for PutRows<'_> {
    fn name(&self) -> &'static str {
        "put_rows"
    }

    fn cpu_fwd(
        &self,
        to: &mut CpuStorage,
        to_layout: &Layout,
        from: &CpuStorage,
        from_layout: &Layout,
    ) -> Result<()> {
        let from = storage::contiguous::<f32>(self.name(), from, from_layout)?;
        let CpuStorage::F32(to) = to else { bail!("put_rows: rows are f32") };
        let Some((start, end)) = to_layout.contiguous_offsets() else {
            bail!("put_rows: the rows are not contiguous: {to_layout:?}")
        };
        let Some(to) = to.get_mut(start..end) else {
            bail!("put_rows: layout ends at {end}, storage before")
        };
        let width = self.width.max(1);
        for (row, from) in self.rows.iter().zip(from.chunks_exact(width)) {
            to[*row as usize * width..][..width].copy_from_slice(from);
        }
        Ok(())
    }
}
