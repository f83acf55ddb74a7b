//! When each token was said: by what the heads of cross attention that follow words looked at, through
//! dynamic time warping.
//!
//! As `_extract_token_timestamps` of transformers: weights are normalized over tokens, smoothed over time
//! by a median, averaged over heads, and the cheapest monotonic path through them is taken.

use super::marks::SECONDS_OF_MARK;
use super::model::Looks;

/// When each token ends, in seconds after the window's start. `tokens` counts all tokens of the window; of
/// each head `looks` has a row for every token but, maybe, the last. Only what the heads saw of the first
/// `positions` states counts.
pub(super) fn ends_of_tokens(
    looks: &Looks,
    tokens: usize,
    positions: usize,
    filter_width: usize,
) -> Vec<f64> {
    let Some(matrix) = average(looks, positions, filter_width) else {
        return vec![0.0; tokens];
    };
    let path = warp(&matrix);
    let mut ends = Vec::with_capacity(tokens);
    let mut before = None;
    for (token, position) in path {
        if before != Some(token) {
            #[expect(clippy::cast_precision_loss, reason = "a window has few positions")]
            ends.push(position as f64 * SECONDS_OF_MARK);
            before = Some(token);
        }
    }
    let last = ends.last().copied().unwrap_or(0.0);
    ends.resize(tokens, last);
    ends
}

/// The mean of all heads, normalized and smoothed: `[tokens][positions]`, or nothing if there is none.
fn average(looks: &Looks, positions: usize, filter_width: usize) -> Option<Vec<Vec<f32>>> {
    let first = looks.heads.first()?;
    let positions = positions.min(first.first()?.len());
    if positions == 0 {
        return None;
    }
    let mut sum = vec![vec![0.0_f32; positions]; first.len()];
    for head in &looks.heads {
        let normalized = normalize(head, positions);
        for (sum, row) in sum.iter_mut().zip(&normalized) {
            for (sum, value) in sum.iter_mut().zip(median(row, filter_width)) {
                *sum += value;
            }
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "there are few heads")]
    let share = 1.0 / looks.heads.len() as f32;
    sum.iter_mut().flatten().for_each(|value| *value *= share);
    Some(sum)
}

/// Rows whose columns have mean 0 and deviation 1; 0 where all rows are equal.
#[expect(clippy::cast_precision_loss, reason = "a window has few tokens")]
fn normalize(rows: &[Vec<f32>], positions: usize) -> Vec<Vec<f32>> {
    let count = rows.len() as f32;
    let mut normalized = vec![vec![0.0; positions]; rows.len()];
    for position in 0..positions {
        let mean = rows.iter().map(|row| row[position]).sum::<f32>() / count;
        let squares = rows.iter().map(|row| (row[position] - mean).powi(2)).sum::<f32>();
        let deviation = (squares / count).sqrt();
        if deviation > 0.0 {
            for (normalized, row) in normalized.iter_mut().zip(rows) {
                normalized[position] = (row[position] - mean) / deviation;
            }
        }
    }
    normalized
}

/// The median of each element and its neighbours, `width` together, mirrored at both ends.
fn median(row: &[f32], width: usize) -> Vec<f32> {
    let half = width / 2;
    if row.len() <= half {
        return row.to_vec();
    }
    let last = row.len() - 1;
    let mirrored = |at: usize| {
        // `half` before the row, then the row, then behind it.
        let at = at.abs_diff(half);
        if at > last { 2 * last - at } else { at }
    };
    let mut around = Vec::with_capacity(width);
    let smoothed = (0..row.len()).map(|at| {
        around.clear();
        around.extend((at..at + width).map(|at| row[mirrored(at)]));
        around.sort_unstable_by(f32::total_cmp);
        around[half]
    });
    smoothed.collect()
}

/// Where the cheapest path to a cell comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Both,
    Token,
    Position,
}

/// The path through `matrix` along its largest values from its first cell to its last, as pairs of a
/// token and a position.
fn warp(matrix: &[Vec<f32>]) -> Vec<(usize, usize)> {
    let (tokens, positions) = (matrix.len(), matrix[0].len());
    let width = positions + 1;
    let mut costs = vec![f32::INFINITY; (tokens + 1) * width];
    let mut steps = vec![Step::Position; (tokens + 1) * width];
    costs[0] = 0.0;
    for token in 1..=tokens {
        steps[token * width] = Step::Token;
        for position in 1..=positions {
            let at = token * width + position;
            let (both, down, right) = (costs[at - width - 1], costs[at - width], costs[at - 1]);
            let (cost, step) = if both < down && both < right {
                (both, Step::Both)
            } else if down < both && down < right {
                (down, Step::Token)
            } else {
                (right, Step::Position)
            };
            #[expect(clippy::cast_possible_truncation, reason = "costs are kept so")]
            let cost = (f64::from(cost) - f64::from(matrix[token - 1][position - 1])) as f32;
            costs[at] = cost;
            steps[at] = step;
        }
    }
    let (mut token, mut position) = (tokens, positions);
    let mut path = Vec::with_capacity(tokens + positions);
    while token > 0 && position > 0 {
        path.push((token - 1, position - 1));
        match steps[token * width + position] {
            Step::Both => (token, position) = (token - 1, position - 1),
            Step::Token => token -= 1,
            Step::Position => position -= 1,
        }
    }
    // What is left of either lies at the other's beginning.
    while token > 0 {
        token -= 1;
        path.push((token, 0));
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(rows: &[&[f32]]) -> Looks {
        Looks { heads: vec![rows.iter().map(|row| row.to_vec()).collect()] }
    }

    #[test]
    fn tokens_are_where_heads_looked() {
        let rows: [&[f32]; 3] =
            [&[9., 9., 0., 0., 0., 0.], &[0., 0., 9., 0., 0., 0.], &[0., 0., 0., 9., 9., 9.]];
        let ends = ends_of_tokens(&looks(&rows), 4, 6, 1);
        for (end, expected) in ends.iter().zip([0.0, 0.04, 0.06, 0.06]) {
            assert!((end - expected).abs() < 1e-9, "{ends:?}");
        }
    }

    #[test]
    fn one_token_and_no_tokens_have_times() {
        assert_eq!(ends_of_tokens(&looks(&[&[0.5, 0.5]]), 2, 2, 7).len(), 2);
        assert_eq!(ends_of_tokens(&looks(&[]), 3, 2, 7), [0.0; 3]);
        assert_eq!(ends_of_tokens(&Looks { heads: Vec::new() }, 1, 2, 7), [0.0]);
    }

    #[test]
    fn a_median_drops_what_stands_alone() {
        assert_eq!(median(&[0., 0., 9., 0., 0.], 3), [0., 0., 0., 0., 0.]);
        assert_eq!(median(&[1., 2., 3., 4., 5.], 3), [2., 2., 3., 4., 4.]);
        assert_eq!(median(&[1., 2.], 7), [1., 2.]);
    }
}
