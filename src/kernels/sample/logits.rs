//! Passes over one row of logits: where it is high, what it weighs under a temperature, its
//! normalizer.
//!
//! A row is seen in blocks of [`BLOCK`] elements, so that whoever looks for a few elements can
//! skip the rest. All results are the same on every level: the largest of numbers has no rounding,
//! exponentials are taken in f64 without fused products (2^n times the Taylor series of e^r with
//! |r| <= ln(2) / 2), and a block's weights are summed in sixteen lanes, then in a fixed tree.

use crate::backend::cpu_level;
use crate::cpu::{Kernel, LANES, Lanes, Level};

/// Elements of a block; the last one may have fewer.
pub const BLOCK: usize = 64;
/// An f32's bits but the sign.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// What one look at a row shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scan {
    /// The largest element of each block, if none is NaN.
    pub maxima: Vec<f32>,
    /// The largest of all, if none is NaN.
    pub max: f32,
    /// Whether an element is NaN.
    pub has_nan: bool,
}

/// Looks at every element of `row`.
pub fn scan(row: &[f32]) -> Scan {
    scan_at(cpu_level(), row)
}

fn scan_at(level: Level, row: &[f32]) -> Scan {
    let mut scan = Scan {
        maxima: vec![f32::NEG_INFINITY; row.len().div_ceil(BLOCK)],
        max: f32::NEG_INFINITY,
        has_nan: false,
    };
    level.run(ScanRow { row, scan: &mut scan });
    scan
}

/// The first element that equals the largest one, which must not be NaN.
pub fn first_largest(row: &[f32], scan: &Scan) -> usize {
    // Equal as numbers: 0 and -0 are one value here, as they are for the maximum.
    let equals = |value: &f32| *value >= scan.max;
    let block = scan.maxima.iter().position(equals).unwrap_or(0);
    let start = block * BLOCK;
    let end = row.len().min(start + BLOCK);
    start + row[start..end].iter().position(equals).unwrap_or(0)
}

/// Turns logits into weights, `e^((logit - max) / temperature)`, each rounded to f32, and zero
/// where that is less than `least`. Gives the sum of each block's weights. Where a logit is NaN
/// its weight is zero.
pub fn weigh(row: &mut [f32], max: f32, temperature: f32, least: f32) -> Vec<f64> {
    weigh_at(cpu_level(), row, max, temperature, least)
}

fn weigh_at(level: Level, row: &mut [f32], max: f32, temperature: f32, least: f32) -> Vec<f64> {
    let mut sums = vec![0.0; row.len().div_ceil(BLOCK)];
    level.run(WeighRow { row, max, temperature, least, sums: &mut sums });
    sums
}

/// `ln(sum(e^logit))`; `max` is the largest logit, which must be finite.
pub fn log_sum_exp(row: &[f32], max: f32) -> f64 {
    log_sum_exp_at(cpu_level(), row, max)
}

fn log_sum_exp_at(level: Level, row: &[f32], max: f32) -> f64 {
    let mut sum = 0.0;
    level.run(SumExp { row, max: f64::from(max), sum: &mut sum });
    f64::from(max) + sum.ln()
}

struct ScanRow<'a> {
    row: &'a [f32],
    scan: &'a mut Scan,
}

impl Kernel for ScanRow<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let mut highest = [0u32; LANES];
        let (blocks, tail) = self.row.as_chunks::<BLOCK>();
        for (block, max) in blocks.iter().zip(&mut *self.scan.maxima) {
            *max = largest(l, block, &mut highest);
        }
        if !tail.is_empty() {
            let mut block = [f32::NEG_INFINITY; BLOCK];
            block[..tail.len()].copy_from_slice(tail);
            if let Some(max) = self.scan.maxima.last_mut() {
                *max = largest(l, &block, &mut highest);
            }
        }
        // Above the bits of infinity come those of the NaNs.
        self.scan.has_nan = highest.iter().any(|bits| *bits > f32::INFINITY.to_bits());
        let mut max = l.splat(f32::NEG_INFINITY);
        let (parts, rest) = self.scan.maxima.as_chunks::<LANES>();
        for part in parts {
            max = l.max(l.load(part), max);
        }
        self.scan.max = rest.iter().fold(l.largest(max), |max, x| if *x > max { *x } else { max });
    }
}

/// The largest element; `highest` takes the largest magnitudes, as bits, lane by lane.
#[inline(always)]
fn largest<L: Lanes>(l: L, block: &[f32; BLOCK], highest: &mut [u32; LANES]) -> f32 {
    let mut best = l.splat(f32::NEG_INFINITY);
    for part in block.as_chunks::<LANES>().0 {
        best = l.max(l.load(part), best);
        for lane in 0..LANES {
            highest[lane] = highest[lane].max(part[lane].to_bits() & MAGNITUDE);
        }
    }
    l.largest(best)
}

struct WeighRow<'a> {
    row: &'a mut [f32],
    max: f32,
    temperature: f32,
    least: f32,
    sums: &'a mut [f64],
}

impl WeighRow<'_> {
    /// Weighs a block in place; gives the sum.
    #[inline(always)]
    fn weigh(&self, block: &mut [f32; BLOCK]) -> f64 {
        let mut sums = [0.0; LANES];
        for part in block.as_chunks_mut::<LANES>().0 {
            for lane in 0..LANES {
                let weight = exp(f64::from((part[lane] - self.max) / self.temperature));
                #[expect(clippy::cast_possible_truncation, reason = "weights are kept in f32")]
                let weight = weight as f32;
                let weight = if weight >= self.least { weight } else { 0.0 };
                part[lane] = weight;
                sums[lane] += f64::from(weight);
            }
        }
        tree_sum(&sums)
    }
}

impl Kernel for WeighRow<'_> {
    #[inline(always)]
    fn run<L: Lanes>(mut self, _: L) {
        let row = std::mem::take(&mut self.row);
        let sums = std::mem::take(&mut self.sums);
        let (blocks, tail) = row.as_chunks_mut::<BLOCK>();
        for (block, sum) in blocks.iter_mut().zip(&mut *sums) {
            *sum = self.weigh(block);
        }
        if !tail.is_empty() {
            let mut block = [f32::NEG_INFINITY; BLOCK];
            block[..tail.len()].copy_from_slice(tail);
            if let Some(sum) = sums.last_mut() {
                *sum = self.weigh(&mut block);
            }
            tail.copy_from_slice(&block[..tail.len()]);
        }
    }
}

struct SumExp<'a> {
    row: &'a [f32],
    max: f64,
    sum: &'a mut f64,
}

impl Kernel for SumExp<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let mut sums = [0.0; LANES];
        let (parts, tail) = self.row.as_chunks::<LANES>();
        for part in parts {
            for lane in 0..LANES {
                sums[lane] += exp(f64::from(part[lane]) - self.max);
            }
        }
        for (sum, logit) in sums.iter_mut().zip(tail) {
            *sum += exp(f64::from(*logit) - self.max);
        }
        *self.sum = tree_sum(&sums);
    }
}

#[inline(always)]
fn tree_sum(sums: &[f64; LANES]) -> f64 {
    let mut sums = *sums;
    let mut width = sums.len();
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
    }
    sums[0]
}

/// 1.5 * 2^52: adding it leaves the nearest integer in the low bits of the mantissa.
const ROUNDER: f64 = 6_755_399_441_055_744.0;
/// Below this an f32 can't hold e^x, nor can it count in a sum with a 1.
const SMALLEST: f64 = -700.0;

/// e^x for `x` up to 0 and a little above, relative error below 2^-46; 0 of NaN and far below 0.
#[inline(always)]
fn exp(x: f64) -> f64 {
    let clamped = if x > SMALLEST { x } else { SMALLEST };
    let shifted = clamped * std::f64::consts::LOG2_E + ROUNDER;
    let n = shifted - ROUNDER;
    // ln(2) in two parts, the first with 21 zero bits at its end so that the product with n is
    // exact.
    let r = (clamped - n * f64::from_bits(0x3fe6_2e42_fee0_0000))
        - n * f64::from_bits(0x3dea_39ef_3579_3c76);
    let mut sum = 1.0 / 39_916_800.0;
    for coefficient in [
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        sum = sum * r + coefficient;
    }
    // n stands in the low bits of `shifted`; moved to the exponent it multiplies by 2^n.
    let power = sum.to_bits().wrapping_add(shifted.to_bits() << 52);
    if x > SMALLEST { f64::from_bits(power) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Rows of awkward lengths, with extremes in awkward places.
    fn rows() -> Vec<Vec<f32>> {
        let mut rows = Vec::new();
        for length in [1, 7, 16, 63, 64, 65, 200, 1000, 4099] {
            let mut row = Random::new(length as u64).floats(length);
            for x in &mut row {
                *x *= 30.0;
            }
            rows.push(row.clone());
            row[length / 2] = f32::NEG_INFINITY;
            row[length - 1] = 31.0;
            row[length / 3] = 31.0;
            rows.push(row);
        }
        rows
    }

    #[test]
    fn a_scan_finds_the_largest_and_the_first_of_equals() {
        for level in Level::available() {
            for row in rows() {
                let scan = scan_at(level, &row);
                let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                assert_eq!((scan.max, scan.has_nan), (max, false));
                for (block, found) in row.chunks(BLOCK).zip(&scan.maxima) {
                    let expected = block.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    assert_eq!(expected.to_bits(), found.to_bits());
                }
                let first = row.iter().position(|x| *x >= max).unwrap();
                assert_eq!(first_largest(&row, &scan), first, "{level:?}");
            }
        }
        let zeros = [-1.0, -0.0, 0.0];
        assert_eq!(first_largest(&zeros, &scan(&zeros)), 1);
    }

    #[test]
    fn a_scan_sees_a_nan_anywhere() {
        for level in Level::available() {
            for length in [1, 64, 65, 1000] {
                for at in [0, length / 2, length - 1] {
                    let mut row = vec![1.0; length];
                    row[at] = f32::NAN;
                    assert!(scan_at(level, &row).has_nan, "{level:?}: {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn weights_are_exponentials_rounded_to_the_nearest() {
        for level in Level::available() {
            for row in rows() {
                let scan = scan_at(level, &row);
                let mut weights = row.clone();
                let sums = weigh_at(level, &mut weights, scan.max, 0.7, 0.0);
                for (logit, weight) in row.iter().zip(&weights) {
                    #[expect(clippy::cast_possible_truncation, reason = "the expected rounding")]
                    let exact = f64::from((logit - scan.max) / 0.7).exp() as f32;
                    assert_eq!(weight.to_bits(), exact.to_bits(), "{level:?}: {logit}");
                }
                for (block, sum) in weights.chunks(BLOCK).zip(sums) {
                    let exact: f64 = block.iter().map(|weight| f64::from(*weight)).sum();
                    assert!((sum - exact).abs() <= exact * 1e-14, "{level:?}: {sum} {exact}");
                }
            }
        }
    }

    #[test]
    fn all_levels_agree_to_the_bit() {
        for row in rows() {
            let run = |level| {
                let max = scan_at(level, &row).max;
                let mut weights = row.clone();
                let sums = weigh_at(level, &mut weights, max, 1.3, 0.01);
                let sums: Vec<u64> = sums.into_iter().map(f64::to_bits).collect();
                let weights: Vec<u32> = weights.into_iter().map(f32::to_bits).collect();
                (sums, weights, log_sum_exp_at(level, &row, max).to_bits())
            };
            let expected = run(Level::scalar());
            for level in Level::available() {
                assert_eq!(run(level), expected, "{level:?}");
            }
        }
    }

    #[test]
    fn light_and_impossible_tokens_weigh_nothing() {
        let mut row = [0.0, -1.0, -2.0, -200.0, f32::NEG_INFINITY, f32::NAN];
        let sums = weigh(&mut row, 0.0, 1.0, 0.2);
        assert_eq!(row[2..], [0.0; 4]);
        assert_eq!(row[0].to_bits(), 1.0_f32.to_bits());
        assert_eq!(sums, [1.0 + f64::from(row[1])]);
        let mut row = [0.0, -110.0, -103.0];
        weigh(&mut row, 0.0, 1.0, 0.0);
        assert!(row[1] <= 0.0 && row[2] > 0.0, "{row:?}");
    }

    #[test]
    fn the_normalizer_is_the_logarithm_of_the_sum() {
        for row in rows() {
            let max = scan(&row).max;
            let sum: f64 = row.iter().map(|x| (f64::from(*x) - f64::from(max)).exp()).sum();
            let expected = f64::from(max) + sum.ln();
            assert!((log_sum_exp(&row, max) - expected).abs() < 1e-12);
        }
    }
}
