//! Sums of few rows of a matrix with weights, on top of a residual: what a token's experts gave it.
//!
//! The rows of a sum are added in the order they are given in.

use std::mem::MaybeUninit;

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, bail};

use super::backend::cpu_level;
use super::cpu::{Kernel, LANES, Lanes, Level, load_tail};
use super::fresh::{Parts, filled};
use super::{pool, portable, storage};

/// A row and its weight in a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pick {
    /// Which row.
    pub row: usize,
    /// Its factor.
    pub weight: f32,
}

/// `residual [T, D]` plus `picks [T * count]` of the rows `x [N, D]`, `count` for each sum.
///
/// # Errors
///
/// A pick behind the last row, picks that are not `count` for each row of `residual`.
pub fn weighted_rows(
    x: &Tensor,
    picks: &[Pick],
    count: usize,
    residual: &Tensor,
) -> Result<Tensor> {
    let (rows, width) = x.dims2()?;
    let sums = residual.dim(0)?;
    if let Some(pick) = picks.iter().find(|pick| pick.row >= rows) {
        bail!("weighted_rows: row {} of {rows}", pick.row);
    }
    if count == 0 || width == 0 || picks.len() != sums * count || residual.dims() != [sums, width] {
        let dims = residual.dims();
        bail!(
            "weighted_rows: {} picks of rows of {width}, {count} for each of {dims:?}",
            picks.len()
        );
    }
    if portable::on(x.device()) {
        return residual + portable::weighted_rows(x, picks, count)?;
    }
    x.apply_op2_no_bwd(residual, &WeightedRows { level: cpu_level(), picks, count })
}

struct WeightedRows<'a> {
    level: Level,
    picks: &'a [Pick],
    count: usize,
}

impl CustomOp2 for WeightedRows<'_> {
    fn name(&self) -> &'static str {
        "weighted_rows"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        layout: &Layout,
        residual: &CpuStorage,
        residual_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (_, width) = layout.shape().dims2()?;
        let x = storage::contiguous::<f32>(self.name(), x, layout)?;
        let residual = storage::contiguous::<f32>(self.name(), residual, residual_layout)?;
        let (count, sums) = (self.count, self.picks.len() / self.count);
        let run = |out: &Parts<'_, MaybeUninit<f32>>| {
            pool::for_each_row_range(sums, width, |first, rows| {
                let range = first * width..(first + rows) * width;
                let residual = &residual[range.clone()];
                // SAFETY: row ranges don't overlap.
                let out = unsafe { out.part(range) };
                let picks = &self.picks[first * count..(first + rows) * count];
                self.level.run(Sums { x, picks, count, width, residual, out });
            });
        };
        // SAFETY: the row ranges cover all sums and `Sums` writes every element of them.
        let out = unsafe { filled(sums * width, run) };
        Ok((CpuStorage::F32(out), Shape::from((sums, width))))
    }
}

/// Writes every element of `out`.
struct Sums<'a> {
    x: &'a [f32],
    picks: &'a [Pick],
    count: usize,
    width: usize,
    /// As long as `out`.
    residual: &'a [f32],
    out: &'a mut [MaybeUninit<f32>],
}

impl Kernel for Sums<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let Self { x, width, .. } = self;
        let sums = self.residual.chunks_exact(width).zip(self.out.chunks_exact_mut(width));
        for (picks, (residual, out)) in self.picks.chunks_exact(self.count).zip(sums) {
            let (residual, residual_tail) = residual.as_chunks::<LANES>();
            let (out, out_tail) = out.as_chunks_mut::<LANES>();
            let whole = out.len() * LANES;
            for (i, (residual, out)) in residual.iter().zip(out).enumerate() {
                let mut sum = l.load(residual);
                for pick in picks {
                    let at = pick.row * width + i * LANES;
                    let row = x[at..at + LANES].as_chunks().0;
                    sum = l.mul_add(l.load(&row[0]), l.splat(pick.weight), sum);
                }
                l.write(sum, out);
            }
            let mut sum = load_tail(l, residual_tail);
            for pick in picks {
                let row = &x[pick.row * width + whole..(pick.row + 1) * width];
                sum = l.mul_add(load_tail(l, row), l.splat(pick.weight), sum);
            }
            let mut tail = [0.0; LANES];
            l.store(sum, &mut tail);
            for (sum, out) in tail.into_iter().zip(out_tail) {
                out.write(sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::{Random, assert_close, bits};
    use super::*;

    fn at(level: Level, x: &Tensor, picks: &[Pick], count: usize, residual: &Tensor) -> Tensor {
        x.apply_op2_no_bwd(residual, &WeightedRows { level, picks, count }).unwrap()
    }

    fn picks(sums: usize, count: usize, rows: usize) -> Vec<Pick> {
        let weights = Random::new(4).floats(sums * count);
        let pick = |i: usize| Pick { row: i * i * 7 % rows, weight: weights[i] };
        (0..sums * count).map(pick).collect()
    }

    #[test]
    fn equals_the_plain_operations() {
        let mut random = Random::new(1);
        for (rows, width, sums, count) in [(1, 1, 1, 1), (5, 16, 3, 2), (40, 70, 90, 8)] {
            let x = random.tensor((rows, width));
            let picks = picks(sums, count, rows);
            let residual = random.tensor((sums, width));
            let expected = portable::weighted_rows(&x, &picks, count).unwrap();
            let expected = (&residual + expected).unwrap();
            for level in Level::available() {
                assert_close(&at(level, &x, &picks, count, &residual), &expected, 1e-5);
            }
        }
    }

    #[test]
    fn a_sum_is_the_same_alone_and_in_a_batch() {
        let mut random = Random::new(2);
        let (x, residual) = (random.tensor((30, 700)), random.tensor((80, 700)));
        let row = residual.narrow(0, 70, 1).unwrap();
        let picks = picks(80, 4, 30);
        for level in Level::available() {
            let all = at(level, &x, &picks, 4, &residual);
            let alone = at(level, &x, &picks[70 * 4..71 * 4], 4, &row);
            assert_eq!(bits(&alone), bits(&all.narrow(0, 70, 1).unwrap()));
        }
    }

    #[test]
    fn picks_that_do_not_fit_are_errors() {
        let mut random = Random::new(3);
        let (x, one, short) = (random.tensor((3, 8)), random.tensor((1, 8)), random.tensor((1, 7)));
        let first = [Pick { row: 0, weight: 1.0 }];
        assert!(weighted_rows(&x, &[Pick { row: 3, weight: 1.0 }], 1, &one).is_err());
        assert!(weighted_rows(&x, &first, 2, &one).is_err());
        assert!(weighted_rows(&x, &first, 1, &short).is_err());
        assert!(weighted_rows(&x, &first, 1, &one).is_ok());
    }
}
