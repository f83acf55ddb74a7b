//! How many tokens of which drafts are worth their rows.
//!
//! A step that computes more rows takes longer and gives more tokens on average. The rows with the best
//! chances are added one by one, and the number that gives most tokens per time is taken: the "goodput"
//! of TurboSpec (<https://arxiv.org/abs/2406.14066>).

/// Gain below which nothing is drafted: estimates are not that exact.
const LEAST_GAIN: f64 = 1.03;

/// Chance below which no row is worth a thought.
pub(super) const LEAST_CHANCE: f32 = 0.04;

/// How many tokens of each draft to compute.
///
/// `chances` has for each draft the chances of its tokens, each given that those before it are right;
/// `decoding` is the number of sequences that get a token at least, and `times[i]` what a step takes
/// with `i` rows of drafts.
pub(super) fn choose(chances: &[Vec<f32>], decoding: usize, times: &[f64]) -> Vec<usize> {
    choose_after(chances, decoding, times, 0.0).0
}

/// As [`choose`], where drafting itself takes `drafting`, unless nothing is drafted. Besides returns the
/// tokens per time that are expected.
pub(super) fn choose_after(
    chances: &[Vec<f32>],
    decoding: usize,
    times: &[f64],
    drafting: f64,
) -> (Vec<usize>, f64) {
    let mut counts = vec![0; chances.len()];
    let Some(time) = times.first() else { return (counts, 0.0) };
    let mut rows: Vec<(f64, usize)> = Vec::new();
    for (draft, chances) in chances.iter().enumerate() {
        let mut together = 1.0;
        for chance in chances {
            together *= f64::from(*chance);
            rows.push((together, draft));
        }
    }
    // Within a draft chances fall, so its rows stay in order.
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut expected = f64::from(u32::try_from(decoding).unwrap_or(u32::MAX));
    let without = expected / time;
    let (mut best, mut most) = (LEAST_GAIN * without, 0);
    for (index, ((chance, _), time)) in rows.iter().zip(&times[1..]).enumerate() {
        expected += chance;
        let rate = expected / (time + drafting);
        if rate > best {
            (best, most) = (rate, index + 1);
        }
    }
    rows[..most].iter().for_each(|(_, draft)| counts[*draft] += 1);
    (counts, if most > 0 { best } else { without })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps whose rows cost a tenth of the first each.
    fn times() -> Vec<f64> {
        (0..40).map(|rows| 10.0 + f64::from(rows)).collect()
    }

    #[test]
    fn takes_what_pays() {
        assert_eq!(choose(&[vec![0.95; 16]], 1, &times()), [15]);
        assert_eq!(choose(&[vec![0.05; 16]], 1, &times()), [0]);
        assert_eq!(choose(&[vec![0.05; 16], vec![0.9; 4]], 2, &times()), [0, 4]);
        assert_eq!(choose(&[vec![0.9; 4]], 1, &[10.0]), [0], "no time is known");
        assert_eq!(choose(&[vec![0.9; 4]], 1, &[]), [0]);
        let even: Vec<f64> = (1..40).map(f64::from).collect();
        assert_eq!(choose(&[vec![0.9; 8]], 1, &even), [0], "each row costs as much as the first");
    }

    #[test]
    fn time_for_drafting_is_paid_by_what_is_drafted() {
        let after = |drafting| choose_after(&[vec![0.9; 4]], 1, &times(), drafting);
        assert_eq!(after(0.0).0, [4]);
        assert_eq!(after(10.0).0, [4]);
        let (counts, rate) = after(100.0);
        assert_eq!(counts, [0]);
        assert!((rate - 0.1).abs() < 1e-9 && after(10.0).1 > 0.15, "{rate}");
    }

    #[test]
    fn a_dear_row_before_cheap_ones_is_passed() {
        let times = [10.0, 25.0, 25.0, 25.0, 25.0, 25.0];
        assert_eq!(choose(&[vec![1.0; 5]], 1, &times), [5]);
        assert_eq!(choose(&[vec![1.0; 1]], 1, &times), [0]);
    }
}
