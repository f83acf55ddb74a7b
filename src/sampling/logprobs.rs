//! Logprobs of drawn tokens, of the model's distribution before filters and temperature.

use std::cmp::Ordering;

/// One drawn token with its logprob and the most likely alternatives at that position.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// The drawn token.
    pub token_id: u32,
    /// Its natural-log probability.
    pub logprob: f32,
    /// The most likely tokens with their logprobs, best first, ties by lower id.
    pub top: Vec<(u32, f32)>,
}

impl TokenLogprobs {
    /// Of `token_id` and the `top` most likely tokens under `logits` (`[vocab_size]`, no NaN).
    pub fn of(logits: &[f32], token_id: u32, top: usize) -> Self {
        let normalizer = log_sum_exp(logits);
        #[expect(clippy::cast_possible_truncation, reason = "logprobs are reported in f32")]
        let logprob = |token: u32| (f64::from(logits[token as usize]) - normalizer) as f32;
        Self {
            token_id,
            logprob: logprob(token_id),
            top: most_likely(logits, top).into_iter().map(|id| (id, logprob(id))).collect(),
        }
    }
}

/// `ln(sum(exp(logits)))`, summed in f64 in order of id.
pub(super) fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    max + logits.iter().map(|logit| (f64::from(*logit) - max).exp()).sum::<f64>().ln()
}

/// Ids of the `count` highest logits, best first, ties by lower id.
pub(super) fn most_likely(logits: &[f32], count: usize) -> Vec<u32> {
    let count = count.min(logits.len());
    if count == 0 {
        return Vec::new();
    }
    let better = |a: &u32, b: &u32| -> Ordering {
        logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b))
    };
    let mut ids: Vec<u32> = (0..).take(logits.len()).collect();
    if count < ids.len() {
        ids.select_nth_unstable_by(count - 1, better);
        ids.truncate(count);
    }
    ids.sort_unstable_by(better);
    ids
}
