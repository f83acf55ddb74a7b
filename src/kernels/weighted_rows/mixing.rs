//! Matrices by which a token's streams of hidden states go over into each other, whose rows and columns add up to one.
//!
//! Xie et al., "mHC: Manifold-Constrained Hyper-Connections", 2025; Sinkhorn and Knopp, "Concerning Nonnegative
//! Matrices and Doubly Stochastic Matrices", 1967.

use candle_core::{D, Result, Tensor, bail};

use crate::backend::Backend;
use crate::fresh::Parts;
use crate::pool;
use crate::storage::read;

const NAME: &str = "mixing_matrices";

/// Of each token's `scores [T, C * C]`, a row for each stream that goes over and a column for each one that it goes
/// over into, a matrix in the same order: the softmax of each row plus `eps`, whose columns, and then in `rounds - 1`
/// rounds rows and columns, are divided by their sums plus `eps`.
///
/// # Errors
///
/// Scores that are not those of `count` streams; no round.
pub fn mixing_matrices(scores: &Tensor, count: usize, rounds: usize, eps: f32) -> Result<Tensor> {
    let (tokens, width) = scores.dims2()?;
    if count == 0 || width != count * count || rounds == 0 {
        bail!("{NAME}: scores {:?} of {count} streams in {rounds} rounds", scores.dims());
    }
    match Backend::of(scores.device()) {
        Backend::Cpu(_) => {
            let stored = read(NAME, scores);
            let mut all = stored.contiguous::<f32>()?.to_vec();
            let parts = &Parts::new(&mut all);
            pool::for_each_row_range(tokens, width * rounds, |first, rows| {
                // SAFETY: row ranges don't overlap.
                let some = unsafe { parts.part(first * width..(first + rows) * width) };
                some.chunks_exact_mut(width).for_each(|one| balance(one, count, rounds, eps));
            });
            Tensor::from_vec(all, (tokens, width), scores.device())
        }
        Backend::Cuda | Backend::Portable => portable(scores, count, rounds, f64::from(eps)),
    }
}

/// Makes a matrix of scores, in place.
fn balance(matrix: &mut [f32], count: usize, rounds: usize, eps: f32) {
    for row in matrix.chunks_exact_mut(count) {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for x in &mut *row {
            *x = (*x - largest).exp();
        }
        let sum: f32 = row.iter().sum();
        for x in row {
            *x = *x / sum + eps;
        }
    }
    for round in 0..rounds {
        if round > 0 {
            for row in matrix.chunks_exact_mut(count) {
                let sum = row.iter().sum::<f32>() + eps;
                for x in row {
                    *x /= sum;
                }
            }
        }
        for column in 0..count {
            let sum = matrix[column..].iter().step_by(count).sum::<f32>() + eps;
            for x in matrix[column..].iter_mut().step_by(count) {
                *x /= sum;
            }
        }
    }
}

/// The same in plain candle operations.
fn portable(scores: &Tensor, count: usize, rounds: usize, eps: f64) -> Result<Tensor> {
    let rows = scores.reshape(((), count, count))?;
    let powers = rows.broadcast_sub(&rows.max_keepdim(D::Minus1)?)?.exp()?;
    let divided = |x: &Tensor, dim, eps| x.broadcast_div(&(x.sum_keepdim(dim)? + eps)?);
    let mut matrix = (divided(&powers, 2, 0.0)? + eps)?;
    for round in 0..rounds {
        if round > 0 {
            matrix = divided(&matrix, 2, eps)?;
        }
        matrix = divided(&matrix, 1, eps)?;
    }
    matrix.reshape(scores.dims())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Random, assert_close, bits, values};

    #[test]
    fn rows_and_columns_add_up_to_one() {
        let mut random = Random::new(1);
        let scores = random.tensor((50, 16));
        let matrices = values(&mixing_matrices(&scores, 4, 20, 1e-6).unwrap());
        for matrix in matrices.chunks_exact(16) {
            for i in 0..4 {
                let row: f32 = matrix[i * 4..(i + 1) * 4].iter().sum();
                let column: f32 = matrix[i..].iter().step_by(4).sum();
                assert!((row - 1.0).abs() < 1e-3 && (column - 1.0).abs() < 1e-4, "{matrix:?}");
            }
        }
    }

    #[test]
    fn equals_the_plain_operations_in_any_company() {
        let mut random = Random::new(2);
        for (tokens, count, rounds) in [(1, 1, 1), (7, 3, 2), (900, 4, 20)] {
            let scores = random.tensor((tokens, count * count));
            let found = mixing_matrices(&scores, count, rounds, 1e-6).unwrap();
            assert_close(&found, &portable(&scores, count, rounds, 1e-6).unwrap(), 1e-5);
            let last = |all: &Tensor| all.narrow(0, tokens - 1, 1).unwrap();
            let alone = mixing_matrices(&last(&scores), count, rounds, 1e-6).unwrap();
            assert_eq!(bits(&alone), bits(&last(&found)));
        }
    }

    #[test]
    fn what_is_no_square_is_refused() {
        let scores = Random::new(3).tensor((2, 8));
        assert!(mixing_matrices(&scores, 3, 2, 1e-6).is_err());
        let square = scores.reshape((4, 4)).unwrap();
        assert!(mixing_matrices(&square, 2, 0, 1e-6).is_err());
        assert!(mixing_matrices(&square, 2, 1, 1e-6).is_ok());
    }
}
