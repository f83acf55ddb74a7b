//! Weighted sums of few rows of a matrix, added to a residual: a token's outputs of its experts, or its
//! streams of hidden states.
//!
//! The rows of a sum are added in the order they are given in.

use candle_core::{Result, Tensor, bail};

pub use self::args::WeightedRow;
pub use self::mixing::mixing_matrices;
pub use self::streams::{add_to_streams, mix_streams, sum_streams};
use super::backend::Backend;

mod args;
mod cpu;
mod mixing;
mod portable;
mod streams;

/// `residual [T, D]` plus sums of `count` rows of `x [N, D]` each, named by `weighted [T * count]`.
///
/// # Errors
///
/// A row behind the last one of `x`; not `count` of them for each row of `residual`.
pub fn weighted_rows(
    x: &Tensor,
    weighted: &[WeightedRow],
    count: usize,
    residual: &Tensor,
) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let sums = residual.dim(0)?;
    if let Some(one) = weighted.iter().find(|one| one.row >= rows) {
        bail!("weighted_rows: row {} of {rows}", one.row);
    }
    if count == 0
        || width == 0
        || weighted.len() != sums * count
        || residual.dims() != [sums, width]
    {
        let dims = residual.dims();
        bail!("weighted_rows: {} rows of {width}, {count} for each of {dims:?}", weighted.len());
    }
    match Backend::of(x.device()) {
        Backend::Cpu(level) => cpu::weighted_rows(level, x, weighted, count, residual),
        Backend::Cuda | Backend::Portable => {
            residual + portable::weighted_rows(x, weighted, count)?
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Level;
    use crate::random::{Random, assert_close, bits};

    fn at(
        level: Level,
        x: &Tensor,
        weighted: &[WeightedRow],
        count: usize,
        residual: &Tensor,
    ) -> Tensor {
        cpu::weighted_rows(level, x, weighted, count, residual).unwrap()
    }

    fn weighted(sums: usize, count: usize, rows: usize) -> Vec<WeightedRow> {
        let weights = Random::new(4).floats(sums * count);
        let one = |i: usize| WeightedRow { row: i * i * 7 % rows, weight: weights[i] };
        (0..sums * count).map(one).collect()
    }

    #[test]
    fn equals_the_plain_operations() {
        let mut random = Random::new(1);
        for (rows, width, sums, count) in [(1, 1, 1, 1), (5, 16, 3, 2), (40, 70, 90, 8)] {
            let x = random.tensor((rows, width));
            let weighted = weighted(sums, count, rows);
            let residual = random.tensor((sums, width));
            let expected = portable::weighted_rows(&x, &weighted, count).unwrap();
            let expected = (&residual + expected).unwrap();
            for level in Level::available() {
                assert_close(&at(level, &x, &weighted, count, &residual), &expected, 1e-5);
            }
        }
    }

    #[test]
    fn a_sum_is_the_same_alone_and_in_a_batch() {
        let mut random = Random::new(2);
        let (x, residual) = (random.tensor((30, 700)), random.tensor((80, 700)));
        let row = residual.narrow(0, 70, 1).unwrap();
        let weighted = weighted(80, 4, 30);
        for level in Level::available() {
            let all = at(level, &x, &weighted, 4, &residual);
            let alone = at(level, &x, &weighted[70 * 4..71 * 4], 4, &row);
            assert_eq!(bits(&alone), bits(&all.narrow(0, 70, 1).unwrap()));
        }
    }

    #[test]
    fn rows_that_do_not_fit_are_errors() {
        let mut random = Random::new(3);
        let (x, one, short) = (random.tensor((3, 8)), random.tensor((1, 8)), random.tensor((1, 7)));
        let first = [WeightedRow { row: 0, weight: 1.0 }];
        assert!(weighted_rows(&x, &[WeightedRow { row: 3, weight: 1.0 }], 1, &one).is_err());
        assert!(weighted_rows(&x, &first, 2, &one).is_err());
        assert!(weighted_rows(&x, &first, 1, &short).is_err());
        assert!(weighted_rows(&x, &first, 1, &one).is_ok());
    }
}
