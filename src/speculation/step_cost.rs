//! What a step takes by its number of rows, learned from those that ran.
//!
//! A decode step reads all weights whatever it computes, so on most machines the second row costs
//! little and the twentieth much: the curve is not a line, and it is another one for each model, kind
//! of weights and machine. Knows counts and durations, no clock.

use std::time::Duration;

/// Rows of the largest step that is learned of.
pub const LARGEST_STEP: usize = 96;

/// What another row costs before that is known, as a share of the smallest known step.
const EXPECTED_SHARE: f64 = 0.15;

/// Steps after which a time that was not seen again is forgotten: contexts grow, machines get busy.
const MEMORY: u64 = 512;

/// Times of steps by rows.
#[derive(Clone, Debug)]
pub(super) struct StepCost {
    times: Vec<Option<Observed>>,
    steps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Observed {
    nanoseconds: f64,
    step: u64,
}

impl StepCost {
    /// Nothing observed.
    pub(super) fn unknown() -> Self {
        Self { times: vec![None; LARGEST_STEP + 1], steps: 0 }
    }

    /// Learns from a step of `rows` rows, one or a few of each sequence.
    pub(super) fn observe(&mut self, rows: usize, took: Duration) {
        self.steps += 1;
        let nanoseconds = took.as_secs_f64() * 1e9;
        let step = self.steps;
        let Some(known) = self.times.get_mut(rows) else { return };
        let nanoseconds = known.map_or(nanoseconds, |known| {
            // One step that was held up must not count much.
            let new = nanoseconds.clamp(known.nanoseconds / 2.0, known.nanoseconds * 1.5);
            known.nanoseconds + (new - known.nanoseconds) / 4.0
        });
        *known = Some(Observed { nanoseconds, step });
    }

    /// Times of steps of `base` rows and more, up to [`LARGEST_STEP`], in nanoseconds, never falling:
    /// what lies between two that are known is on the line between them. `None` before a step of
    /// about `base` rows was seen.
    pub(super) fn curve(&self, base: usize) -> Option<Vec<f64>> {
        let known = self.times.iter().enumerate().filter_map(|(rows, known)| {
            let known = (*known)?;
            (self.steps - known.step < MEMORY).then_some((rows, known.nanoseconds))
        });
        let known: Vec<(usize, f64)> = known.collect();
        let first = known.iter().position(|(rows, _)| *rows >= base).unwrap_or(known.len());
        let (_, least) = *known.get(first.saturating_sub(1)).or(known.first())?;
        let slope = least * EXPECTED_SHARE;
        let mut curve = Vec::with_capacity(LARGEST_STEP + 1 - base.min(LARGEST_STEP));
        for rows in base..=LARGEST_STEP {
            let after = known.partition_point(|(known, _)| *known < rows);
            let time = match (after.checked_sub(1).map(|before| known[before]), known.get(after)) {
                (_, Some((at, time))) if *at == rows => *time,
                (Some((low, from)), Some((high, to))) => {
                    let share = ratio(rows - low, high - low);
                    from + share * (to - from).max(0.0)
                }
                (Some((low, from)), None) => from + slope * ratio(rows - low, 1),
                (None, Some((high, to))) => (to - slope * ratio(high - rows, 1)).max(to / 2.0),
                (None, None) => return None,
            };
            curve.push(curve.last().copied().unwrap_or(0.0_f64).max(time));
        }
        Some(curve)
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of rows are small")]
fn ratio(count: usize, of: usize) -> f64 {
    count as f64 / of as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(times: &[(usize, u64)]) -> StepCost {
        let mut cost = StepCost::unknown();
        for (rows, took) in times {
            cost.observe(*rows, Duration::from_micros(*took));
        }
        cost
    }

    #[test]
    fn lies_on_lines_between_what_is_known_and_never_falls() {
        assert_eq!(observed(&[]).curve(1), None);
        let curve = observed(&[(1, 100), (5, 120), (9, 110)]).curve(1).unwrap();
        let micros: Vec<_> = curve.iter().map(|time| format!("{:.0}", time / 1e3)).collect();
        assert_eq!(micros[..5], ["100", "105", "110", "115", "120"]);
        assert_eq!(micros[8], "120");
        assert!(curve[9] > curve[8] && curve.len() == LARGEST_STEP);
        assert!(curve.is_sorted());
    }

    #[test]
    fn a_step_that_was_held_up_counts_little_and_old_times_are_forgotten() {
        let mut cost = observed(&[(1, 100), (2, 110), (1, 100_000)]);
        let curve = cost.curve(1).unwrap();
        assert!(curve[0] < 120e3, "{}", curve[0]);
        for _ in 0..MEMORY {
            cost.observe(1, Duration::from_micros(100));
        }
        let curve = cost.curve(1).unwrap();
        assert!((curve[1] / curve[0] - 1.0 - EXPECTED_SHARE).abs() < 1e-6, "{curve:?}");
    }
}
