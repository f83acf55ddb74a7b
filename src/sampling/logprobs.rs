//! Logprobs of drawn tokens, of the model's distribution before filters and temperature.

use std::cmp::Ordering;

use crate::kernels::sample::logits::{BLOCK, Scan, log_sum_exp};

/// One drawn token with its logprob and the most likely alternatives at that position.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// The drawn token.
    pub token_id: u32,
    /// Its natural-log probability.
    pub logprob: f32,
    /// Its place among all tokens, from 1, best first; equal ones share the first place.
    pub rank: u32,
    /// The most likely tokens with their logprobs, best first, ties by lower id.
    pub top: Vec<(u32, f32)>,
}

impl TokenLogprobs {
    /// Of `token_id` and the `top` most likely tokens under `logits` (`[vocab_size]`, no NaN),
    /// which were scanned in `scan`; of the tokens `listed`, in their order, in place of the most
    /// likely ones if there is such a list.
    pub fn of(
        logits: &[f32],
        scan: &Scan,
        token_id: u32,
        top: usize,
        listed: Option<&[u32]>,
    ) -> Self {
        let mut each = Self::of_each(logits, scan, &[token_id], top, listed);
        each.pop().expect("one for one token")
    }

    /// The same for several tokens at that position.
    pub fn of_each(
        logits: &[f32],
        scan: &Scan,
        token_ids: &[u32],
        top: usize,
        listed: Option<&[u32]>,
    ) -> Vec<Self> {
        let normalizer = log_sum_exp(logits, scan.max);
        #[expect(clippy::cast_possible_truncation, reason = "logprobs are reported in f32")]
        let logprob = |token: u32| (f64::from(logits[token as usize]) - normalizer) as f32;
        let likely = || most_likely(logits, &scan.maxima, top);
        let top = listed.map_or_else(likely, <[u32]>::to_vec).into_iter();
        let top: Vec<(u32, f32)> = top.map(|id| (id, logprob(id))).collect();
        // Where there is a list, the token itself is told with it.
        let own = |id: &u32| listed.filter(|ids| !ids.contains(id)).map(|_| (*id, logprob(*id)));
        let each = token_ids.iter().map(|token_id| Self {
            token_id: *token_id,
            logprob: logprob(*token_id),
            rank: rank(logits, *token_id),
            top: own(token_id).into_iter().chain(top.iter().copied()).collect(),
        });
        each.collect()
    }
}

/// Turns logits (`[vocab_size]`, scanned in `scan`) into log-probabilities.
pub(super) fn normalize(logits: &mut [f32], scan: &Scan) {
    let normalizer = log_sum_exp(logits, scan.max);
    for logit in logits {
        #[expect(clippy::cast_possible_truncation, reason = "log-probabilities are kept in f32")]
        let logprob = (f64::from(*logit) - normalizer) as f32;
        *logit = logprob;
    }
}

fn rank(logits: &[f32], token_id: u32) -> u32 {
    let own = logits[token_id as usize];
    // Counted in 32 bits, which the compiler makes vectors of.
    logits.iter().map(|logit| u32::from(*logit > own)).sum::<u32>() + 1
}

/// Ids of the `count` highest logits, best first, ties by lower id. `maxima` are the largest
/// logits of each block.
pub(super) fn most_likely(logits: &[f32], maxima: &[f32], count: usize) -> Vec<u32> {
    let count = count.min(logits.len());
    if count == 0 {
        return Vec::new();
    }
    let bound = reached_by(maxima, count);
    let mut ids: Vec<u32> = Vec::with_capacity(2 * count);
    let first_ids = (0..).step_by(BLOCK);
    for ((first_id, block), max) in first_ids.zip(logits.chunks(BLOCK)).zip(maxima) {
        if *max >= bound {
            let reaches = (first_id..).zip(block).filter(|(_, logit)| **logit >= bound);
            ids.extend(reaches.map(|(id, _): (u32, _)| id));
        }
    }
    let better = |a: &u32, b: &u32| -> Ordering {
        logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b))
    };
    if count < ids.len() {
        ids.select_nth_unstable_by(count - 1, better);
        ids.truncate(count);
    }
    ids.sort_unstable_by(better);
    ids
}

/// What at least `count` logits reach: so many blocks do.
fn reached_by(maxima: &[f32], count: usize) -> f32 {
    if count > maxima.len() {
        return f32::NEG_INFINITY;
    }
    let mut maxima = maxima.to_vec();
    *maxima.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a)).1
}
