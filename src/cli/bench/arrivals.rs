//! When requests arrive in an open loop: a Poisson process, drawn by seed.
//!
//! Real users don't wait for each other, so the gaps between their requests are exponential. The
//! times are those of the schedule, whatever the server does. Reference: D. Knuth, The Art of
//! Computer Programming, volume 2, 3.4.1 (the exponential distribution by inversion).

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Endless arrival times, counted from the start; the first is zero.
#[derive(Debug)]
pub(crate) struct PoissonArrivals {
    rng: ChaCha8Rng,
    mean_gap_s: f64,
    next_s: f64,
}

impl PoissonArrivals {
    /// `rate` is in requests per second and positive.
    pub(crate) fn new(rate: f64, seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed), mean_gap_s: 1.0 / rate, next_s: 0.0 }
    }
}

impl Iterator for PoissonArrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // A rate near zero overflows a Duration: such an arrival never comes.
        let at = Duration::try_from_secs_f64(self.next_s).ok()?;
        let uniform: f64 = self.rng.random();
        // `uniform` is below 1, so the logarithm is finite.
        self.next_s -= (1.0 - uniform).ln() * self.mean_gap_s;
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_times_other_seed_other_times() {
        let times = |seed| PoissonArrivals::new(2.0, seed).take(50).collect::<Vec<_>>();
        assert_eq!(times(7), times(7));
        assert_ne!(times(7), times(8));
        assert_eq!(times(7)[0], Duration::ZERO);
        assert!(times(7).is_sorted());
    }

    #[test]
    fn gaps_have_the_mean_and_the_spread_of_an_exponential() {
        let times: Vec<f64> =
            PoissonArrivals::new(4.0, 1).take(20_001).map(|at| at.as_secs_f64()).collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let count = f64::from(u32::try_from(gaps.len()).unwrap());
        let mean = gaps.iter().sum::<f64>() / count;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
        assert!((mean - 0.25).abs() < 0.01, "mean {mean}");
        assert!((variance.sqrt() - 0.25).abs() < 0.015, "deviation {}", variance.sqrt());
        let beyond =
            f64::from(u32::try_from(gaps.iter().filter(|&&gap| gap > 0.25).count()).unwrap());
        assert!((beyond / count - (-1.0f64).exp()).abs() < 0.02);
    }

    #[test]
    fn a_rate_near_zero_does_not_panic() {
        let mut arrivals = PoissonArrivals::new(f64::MIN_POSITIVE, 3);
        assert_eq!(arrivals.next(), Some(Duration::ZERO));
        assert_eq!(arrivals.next(), None);
    }
}
