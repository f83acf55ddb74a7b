//! Numbers -> mean and percentiles.

use serde::Serialize;

/// A summary of measured values, in the unit of the values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Distribution {
    pub(crate) count: usize,
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Distribution {
    /// `None` when nothing was measured.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let max = *values.last()?;
        Some(Self {
            count: values.len(),
            mean: values.iter().sum::<f64>() / as_f64(values.len()),
            p50: percentile(&values, 50.0),
            p90: percentile(&values, 90.0),
            p99: percentile(&values, 99.0),
            max,
        })
    }
}

/// Percentile by linear interpolation between the two nearest values (method 7 of R. Hyndman and
/// Y. Fan, Sample Quantiles in Statistical Packages, 1996). `sorted` is ascending and not empty,
/// `percent` is in 0..=100.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let last = sorted.len() - 1;
    let position = as_f64(last) * percent / 100.0;
    // The position is in 0..=last, so the cast neither truncates nor loses a sign.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let low = (position.floor() as usize).min(last);
    let high = (low + 1).min(last);
    sorted[low] + (sorted[high] - sorted[low]) * (position - as_f64(low))
}

/// Counts here are far below 2^53.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_measured_gives_nothing() {
        assert_eq!(Distribution::of(Vec::new()), None);
    }

    #[test]
    fn one_value_is_every_percentile() {
        let one = Distribution::of(vec![3.5]).unwrap();
        assert_eq!(
            one,
            Distribution { count: 1, mean: 3.5, p50: 3.5, p90: 3.5, p99: 3.5, max: 3.5 }
        );
    }

    #[test]
    fn interpolates_between_the_nearest_values() {
        let values: Vec<f64> = (1..=5).rev().map(f64::from).collect();
        let five = Distribution::of(values).unwrap();
        // numpy.percentile([1, 2, 3, 4, 5], [50, 90, 99]) = [3.0, 4.6, 4.96]
        assert!((five.mean - 3.0).abs() < 1e-12);
        assert!((five.p50 - 3.0).abs() < 1e-12);
        assert!((five.p90 - 4.6).abs() < 1e-12);
        assert!((five.p99 - 4.96).abs() < 1e-12);
        assert!((five.max - 5.0).abs() < 1e-12);
        let two = Distribution::of(vec![2.0, 1.0]).unwrap();
        assert!((two.p50 - 1.5).abs() < 1e-12);
    }

    #[test]
    fn percentiles_of_a_large_sample_are_in_order() {
        let values: Vec<f64> = (0..10_000).map(|i| f64::from(i * 7919 % 10_007)).collect();
        let many = Distribution::of(values).unwrap();
        assert!(many.p50 < many.p90 && many.p90 < many.p99 && many.p99 < many.max);
    }
}
