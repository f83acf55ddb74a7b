//! The most likely token of a row of logits, and how likely it is: what a draft model drafts.

use crate::kernels::sample::logits::{first_largest, log_sum_exp, scan};

/// The token that greedy sampling takes, the first of those with the largest logit, and its probability.
/// `None` where a logit is not a number or none is finite.
pub fn most_likely(logits: &[f32]) -> Option<(u32, f32)> {
    let scan = scan(logits);
    if scan.has_nan || !scan.max.is_finite() {
        return None;
    }
    let token = u32::try_from(first_largest(logits, &scan)).ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "a probability")]
    let probability = (f64::from(scan.max) - log_sum_exp(logits, scan.max)).exp() as f32;
    Some((token, probability))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_largest_with_its_probability() {
        let (token, probability) = most_likely(&[0.0, 3.0, -1.0, 3.0]).expect("all are finite");
        assert_eq!(token, 1);
        let e = f32::exp;
        let sum = 1.0 + 2.0 * e(3.0) + e(-1.0);
        assert!((probability - e(3.0) / sum).abs() < 1e-6, "{probability}");
        assert_eq!(most_likely(&[1.0, f32::NAN]), None);
        assert_eq!(most_likely(&[f32::NEG_INFINITY; 3]), None);
        assert_eq!(most_likely(&[]), None);
        assert_eq!(most_likely(&[f32::NEG_INFINITY, 2.0]), Some((1, 1.0)));
    }
}
