//! How often something is done in a second.

use std::time::Instant;

use super::device::RUNS;

/// `units` per second in the best run.
pub(super) fn best_rate(units: usize, run: impl Fn()) -> f64 {
    let mut seconds = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        run();
        seconds = seconds.min(start.elapsed().as_secs_f64());
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rate = units as f64 / seconds;
    rate
}
