//! Rows of one matrix to chosen rows of another, in place.

use candle_core::{Result, Tensor, bail};

use super::backend::Backend;
use super::storage::{read, write};

mod cuda;

const NAME: &str = "put_rows";

/// Overwrites row `rows[i]` of `to [T, D]` with row `i` of `from [rows.len(), D]`, both f32.
/// The rows are different from each other.
///
/// # Errors
///
/// A row behind the last one, widths or counts that differ.
pub fn put_rows(to: &Tensor, rows: &[u32], from: &Tensor) -> Result<()> {
    let (count, width) = to.dims2()?;
    if let Some(row) = rows.iter().find(|row| **row as usize >= count) {
        bail!("{NAME}: row {row} of {count}");
    }
    if from.dims() != [rows.len(), width] {
        bail!("{NAME}: {:?} into {} rows of {width}", from.dims(), rows.len());
    }
    match Backend::of(to.device()) {
        Backend::Cpu(_) => {}
        Backend::Cuda => return cuda::put_rows(to, rows, from),
        Backend::Portable => {
            let mut rows = rows.iter().enumerate();
            return rows
                .try_for_each(|(i, row)| to.slice_set(&from.narrow(0, i, 1)?, 0, *row as usize));
        }
    }
    let (from, width) = (read(NAME, from), width.max(1));
    let from = from.contiguous::<f32>()?;
    write::<f32>(NAME, to, |to| {
        for (row, from) in rows.iter().zip(from.chunks_exact(width)) {
            to[*row as usize * width..][..width].copy_from_slice(from);
        }
        Ok(())
    })
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
