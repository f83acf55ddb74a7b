//! Attention with linear biases: scores fall with the distance from the query, by a slope per head.
//!
//! Press et al., "Train Short, Test Long", 2021.

/// Slopes of `heads` heads: a geometric series from `2^(-max_bias / n)` down to `2^-max_bias`, `n`
/// being the largest power of two up to `heads`; then, for the other heads, every second slope of
/// the series for `2 * n` heads.
pub(super) fn slopes(heads: usize, max_bias: f32) -> Vec<f32> {
    let whole = if heads.is_power_of_two() { heads } else { heads.next_power_of_two() / 2 };
    #[expect(clippy::cast_precision_loss, reason = "heads are few")]
    let slope = |i: usize, count: usize| (-max_bias * i as f32 / count as f32).exp2();
    let first = (1..=whole).map(|i| slope(i, whole));
    let others = (1..=heads - whole).map(|i| slope(2 * i - 1, 2 * whole));
    first.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_are_those_of_the_next_powers_of_two() {
        let near = |slopes: &[f32], expected: &[f32]| {
            slopes.len() == expected.len()
                && slopes.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
        };
        assert!(near(&slopes(4, 8.0), &[0.25, 0.0625, 0.015_625, 0.003_906_25]));
        let six = [0.25, 0.0625, 0.015_625, 0.003_906_25, 0.5, 0.125];
        assert!(near(&slopes(6, 8.0), &six));
        assert!(near(&slopes(1, 8.0), &[0.003_906_25]));
    }
}
