//! Parts of tensors, seen as if the checkpoint had no more than them.

use std::ops::Range;

use candle_core::{Result, bail};

use super::error::WeightError;
use super::stored::StoredTensor;

/// What is left of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// These rows, one range after the other: of a vector, of a matrix, or of each matrix of a
    /// tensor that has several.
    Rows(Vec<Range<usize>>),
    /// These columns of every row, one range after the other.
    Columns(Vec<Range<usize>>),
    /// Zeros in place of all numbers.
    Zeros,
    /// The tensor of another full name instead.
    Other(String),
}

impl Cut {
    /// What it leaves of `tensor`.
    ///
    /// # Errors
    ///
    /// Ranges that end behind the last row or column, or cut through blocks of quantized elements;
    /// another tensor that can't be read.
    pub(super) fn of(
        &self,
        tensor: &StoredTensor,
        read: impl Fn(&str) -> std::result::Result<StoredTensor, WeightError>,
    ) -> Result<StoredTensor> {
        match self {
            Self::Other(name) => read(name).map_err(candle_core::Error::wrap),
            Self::Rows(ranges) => rows(tensor, ranges),
            Self::Columns(ranges) => tensor.columns(ranges),
            Self::Zeros => Ok(tensor.zeros()),
        }
    }
}

fn rows(tensor: &StoredTensor, ranges: &[Range<usize>]) -> Result<StoredTensor> {
    let (outer, rows, columns) = match tensor.dims() {
        [] | [_] => return tensor.rows(ranges),
        [outer @ .., rows, columns] => (outer.to_vec(), *rows, *columns),
    };
    if let Some(range) = ranges.iter().find(|range| range.end > rows) {
        bail!("rows {range:?} of {rows}");
    }
    let of_matrix = |matrix: usize| {
        ranges.iter().map(move |range| matrix * rows + range.start..matrix * rows + range.end)
    };
    let all: Vec<_> = (0..outer.iter().product()).flat_map(of_matrix).collect();
    let kept = ranges.iter().map(ExactSizeIterator::len).sum();
    Ok(tensor.rows(&all)?.with_dims(&[outer, vec![kept, columns]].concat()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use candle_core::{DType, Device, Tensor};

    use super::*;
    use crate::{MemoryTensors, Weights};

    fn cut(
        shape: &[usize],
        cut: Cut,
        left: &[usize],
    ) -> std::result::Result<Vec<f32>, WeightError> {
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let count = shape.iter().product::<usize>() as f32;
        let tensor = Tensor::arange(0f32, count, &Device::Cpu)?.reshape(shape)?;
        let other = ("b".to_owned(), (&tensor + 100.0)?);
        let tensors = MemoryTensors::new(HashMap::from([("a".to_owned(), tensor), other]));
        let weights = Weights::new(Arc::new(tensors), Device::Cpu);
        let weights = weights.cut(HashMap::from([("a".to_owned(), cut)]));
        Ok(weights.dense("a", left, DType::F32)?.flatten_all()?.to_vec1()?)
    }

    #[test]
    fn parts_of_tensors_are_seen_as_wholes() {
        let [middle, first, last] = [1..3, 0..1, 2..3];
        let columns = cut(&[3, 4], Cut::Columns(vec![middle.clone()]), &[3, 2]).unwrap();
        assert_eq!(columns, [1.0, 2.0, 5.0, 6.0, 9.0, 10.0]);
        let columns = cut(&[2, 4], Cut::Columns(vec![first.clone(), last.clone()]), &[2, 2]);
        assert_eq!(columns.unwrap(), [0.0, 2.0, 4.0, 6.0]);
        let rows = cut(&[3, 2], Cut::Rows(vec![last.clone(), first.clone()]), &[2, 2]).unwrap();
        assert_eq!(rows, [4.0, 5.0, 0.0, 1.0]);
        let rows = cut(&[2, 3, 1], Cut::Rows(vec![middle.clone()]), &[2, 2, 1]).unwrap();
        assert_eq!(rows, [1.0, 2.0, 4.0, 5.0]);
        assert_eq!(cut(&[4], Cut::Rows(vec![middle.clone()]), &[2]).unwrap(), [1.0, 2.0]);
        assert_eq!(cut(&[2, 2], Cut::Zeros, &[2, 2]).unwrap(), [0.0; 4]);
        assert_eq!(cut(&[2], Cut::Other("b".to_owned()), &[2]).unwrap(), [100.0, 101.0]);
    }

    #[test]
    fn parts_that_are_not_there_are_errors_that_name_the_tensor() {
        for (bad, told) in [
            (Cut::Columns(vec![1..2, 3..5]), "columns 3..5 of 4"),
            (Cut::Rows(vec![2..4, 0..1]), "rows 2..4 of 3"),
            (Cut::Other("c".to_owned()), "c"),
        ] {
            let error = cut(&[3, 4], bad, &[3, 4]).unwrap_err().to_string();
            assert!(error.contains('a') && error.contains("can't be split"), "{error}");
            assert!(error.contains(told), "{error}");
        }
        // What is left has another shape than the whole.
        assert!(cut(&[3, 4], Cut::Columns(vec![0..1, 2..3]), &[3, 4]).is_err());
    }
}
