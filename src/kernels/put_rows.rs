//! Rows of one matrix into places of another, in place.

use candle_core::{CpuStorage, InplaceOp2, Layout, Result, Tensor, bail};

use super::{portable, storage};

/// Overwrites row `rows[i]` of `to [T, D]` with row `i` of `from [rows.len(), D]`, both f32.
///
/// # Errors
///
/// A row behind the last one, widths or counts that differ.
pub fn put_rows(to: &Tensor, rows: &[u32], from: &Tensor) -> Result<()> {
    let (count, width) = to.dims2()?;
    if let Some(row) = rows.iter().find(|row| **row as usize >= count) {
        bail!("put_rows: row {row} of {count}");
    }
    if from.dims() != [rows.len(), width] {
        bail!("put_rows: {:?} into {} rows of {width}", from.dims(), rows.len());
    }
    if portable::on(to.device()) {
        for (i, row) in rows.iter().enumerate() {
            to.slice_set(&from.narrow(0, i, 1)?, 0, *row as usize)?;
        }
        return Ok(());
    }
    to.inplace_op2(from, &PutRows { rows, width })
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

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn named_rows_change_and_others_stay() {
        let to = Tensor::zeros((4, 3), candle_core::DType::F32, &Device::Cpu).unwrap();
        let from = Tensor::arange(1f32, 7.0, &Device::Cpu).unwrap().reshape((2, 3)).unwrap();
        put_rows(&to, &[3, 1], &from).unwrap();
        let rows = to.to_vec2::<f32>().unwrap();
        assert_eq!(rows, [[0.0; 3], [4.0, 5.0, 6.0], [0.0; 3], [1.0, 2.0, 3.0]]);
        assert!(put_rows(&to, &[4, 1], &from).unwrap_err().to_string().contains("row 4 of 4"));
        assert!(put_rows(&to, &[1], &from).is_err());
    }
}
