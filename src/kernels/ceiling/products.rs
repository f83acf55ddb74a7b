//! What products with packed weights reach, kind by kind: less than the instructions could do, by what
//! scales, unpacking and waiting for memory cost.

use candle_core::{Device, Result, Tensor};
use sconce_blocks::Kind;

use super::rate::best_rate;
use crate::linear::{Layer, linear};
use crate::packed::PackedMatrix;

/// Bytes of the matrix: more than any cache holds.
const MATRIX_BYTES: usize = 96 << 20;
/// Columns of the matrix.
const COLUMNS: usize = 2048;
/// Rows of the matrix for many rows: it is packed as large as is needed to be one of many.
const MANY_ROWS_MATRIX: usize = 8192;

/// What products with weights of one kind reach on the CPU, on the whole thread team.
#[derive(Clone, Copy, Debug)]
pub struct ProductRates {
    /// Bytes of weights read in a second, multiplied with a single row.
    pub read_bytes: f64,
    /// Multiplications and additions in a second, with many rows.
    pub operations: f64,
}

impl ProductRates {
    /// Measures products with weights of a kind, for some tenths of a second; `rows` is how many rows are
    /// many.
    ///
    /// # Errors
    ///
    /// No memory for the matrix.
    pub fn measure(kind: impl Into<Kind>, rows: usize) -> Result<Self> {
        let kind = kind.into();
        let row_bytes = COLUMNS / kind.block_size() * kind.type_size();
        let large = Self::matrix(kind, (MATRIX_BYTES / row_bytes).max(1), row_bytes)?;
        let read_bytes = Self::rate(&large, 1, large.size_in_bytes())?;
        let small = Self::matrix(kind, MANY_ROWS_MATRIX, row_bytes)?;
        let operations = Self::rate(&small, rows, 2 * rows * MANY_ROWS_MATRIX * COLUMNS)?;
        Ok(Self { read_bytes, operations })
    }

    /// Blocks of zeros, which take as long as any others.
    fn matrix(kind: Kind, rows: usize, row_bytes: usize) -> Result<PackedMatrix> {
        PackedMatrix::pack(kind, rows, COLUMNS, &vec![0; rows * row_bytes], None)
    }

    /// `units` in a second of products with so many rows.
    fn rate(matrix: &PackedMatrix, rows: usize, units: usize) -> Result<f64> {
        let x = Tensor::ones((rows, COLUMNS), candle_core::DType::F32, &Device::Cpu)?;
        let layer = Layer { matrix, bias: None };
        // What can fail has not failed once it ran.
        linear(&x, layer)?;
        Ok(best_rate(units, || drop(linear(&x, layer))))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::GgmlDType;

    use super::*;

    #[test]
    fn rates_are_numbers_above_zero() {
        for kind in [GgmlDType::BF16, GgmlDType::Q4K] {
            let rates = ProductRates::measure(kind, 8).unwrap();
            for rate in [rates.read_bytes, rates.operations] {
                assert!(rate.is_finite() && rate > 0.0, "{kind:?}: {rates:?}");
            }
        }
    }
}
