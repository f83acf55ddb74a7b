//! Measured values in buckets whose bounds are 1, 2 and 5 times powers of ten.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

/// Cells of the longest bar.
const WIDTH: usize = 40;
/// The bounds of a power of ten.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

/// How many values are in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Bucket {
    /// Its upper bound, in the unit of the values; the next lower one is that of the bucket before.
    pub(crate) up_to: f64,
    pub(crate) count: usize,
}

/// Buckets from that of the least value to that of the largest.
pub(crate) fn histogram(values: impl Iterator<Item = f64>) -> Vec<Bucket> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(rung(value)).or_insert(0) += 1;
    }
    let (Some((first, _)), Some((last, _))) = (counts.first_key_value(), counts.last_key_value())
    else {
        return Vec::new();
    };
    let bucket = |at| Bucket { up_to: bound(at), count: counts.get(&at).copied().unwrap_or(0) };
    (*first..=*last).map(bucket).collect()
}

/// A line for each bucket.
pub(crate) fn lines(buckets: &[Bucket]) -> String {
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    let mut text = String::new();
    for Bucket { up_to, count } in buckets {
        let cells = (count * WIDTH).div_ceil(most);
        let _ = writeln!(text, "  up to {up_to:>8}  {:<WIDTH$} {count}", "#".repeat(cells));
    }
    text
}

/// The number of the bucket of a value; bucket 0 ends at 1.
fn rung(value: f64) -> i32 {
    let mut rungs = LEAST..MOST;
    rungs.find(|at| value <= bound(*at)).unwrap_or(MOST)
}

/// The bucket of a millionth and less: below nothing is told apart.
const LEAST: i32 = -18;
/// The bucket of 10^12 and more.
const MOST: i32 = 36;

fn bound(rung: i32) -> f64 {
    let step = STEPS[rung.rem_euclid(3).unsigned_abs() as usize];
    // Divided, since powers of ten below one have no exact value.
    match rung.div_euclid(3) {
        power @ 0.. => step * 10_f64.powi(power),
        power => step / 10_f64.powi(-power),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_the_bucket_that_ends_at_it_or_above() {
        let buckets = histogram([0.5, 0.7, 1.0, 1.1, 30.0].into_iter());
        let seen: Vec<_> = buckets.iter().map(|bucket| (bucket.up_to, bucket.count)).collect();
        let expected = [(0.5, 1), (1.0, 2), (2.0, 1), (5.0, 0), (10.0, 0), (20.0, 0), (50.0, 1)];
        assert_eq!(seen, expected);
        assert_eq!(histogram(std::iter::empty()), []);
    }

    #[test]
    fn the_longest_bar_has_all_cells_and_no_value_is_invisible() {
        let buckets = [Bucket { up_to: 10.0, count: 1000 }, Bucket { up_to: 20.0, count: 1 }];
        let text = lines(&buckets);
        let cells: Vec<_> = text.lines().map(|line| line.matches('#').count()).collect();
        assert_eq!(cells, [WIDTH, 1]);
        assert!(text.ends_with(" 1\n") && text.contains("up to       10"), "{text}");
    }
}
