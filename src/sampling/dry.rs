//! "Don't repeat yourself": the longer the repetition that a token would continue, the less likely
//! it gets, exponentially.
//!
//! As llama.cpp defines it, after p-e-w's proposal: of all places of the last tokens that end like
//! the whole, the one with the longest common ending counts for the token behind it. A common
//! ending doesn't reach over a sequence breaker.

use std::collections::HashMap;
use std::sync::Arc;

/// Tokens where repetitions are cut: for each the tokens that must follow, if its end is only the
/// beginning of a breaker. An empty list of followers means that the token has a whole one.
pub type Breakers = HashMap<u32, Vec<Vec<u32>>>;

/// Bound of what a token costs, for logits to stay finite.
const MOST: f32 = 1e30;

/// How repetitions are made less likely.
#[derive(Clone, Debug, PartialEq)]
pub struct DryParams {
    /// Subtracted from the logit where a repetition of just the allowed length would go on; above
    /// 0.
    pub multiplier: f32,
    /// What each further token multiplies it by, at least 1.
    pub base: f32,
    /// Repetitions up to this length cost nothing, at least 1.
    pub allowed_length: usize,
    /// Tokens that are looked at, from the end; `None` for all.
    pub last_n: Option<usize>,
    /// Where repetitions are cut.
    pub breakers: Arc<Breakers>,
}

/// The tokens so far, and what they cost.
#[derive(Clone, Debug)]
pub(super) struct Dry {
    params: DryParams,
    tokens: Vec<u32>,
}

impl Dry {
    pub(super) fn new(params: DryParams, prompt: &[u32]) -> Self {
        Self { params, tokens: prompt.to_vec() }
    }

    pub(super) fn push(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// Subtracts from `logits`, `[vocab_size]`, what each token would cost.
    pub(super) fn apply(&self, logits: &mut [f32]) {
        let DryParams { multiplier, base, allowed_length, .. } = self.params;
        for (token, length) in self.repetitions() {
            #[expect(clippy::cast_precision_loss, reason = "a length that matters is small")]
            let cost = multiplier * base.powf((length - allowed_length) as f32);
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit -= cost.min(MOST);
            }
        }
    }

    /// Each token that would continue a repetition, with the length of the longest.
    fn repetitions(&self) -> HashMap<u32, usize> {
        let allowed = self.params.allowed_length;
        let first = self.tokens.len().saturating_sub(self.params.last_n.unwrap_or(usize::MAX));
        let recent = &self.tokens[first..];
        let reach = self.unbroken(recent);
        let mut longest = HashMap::new();
        if recent.len() <= allowed || reach < allowed {
            return longest;
        }
        for (ending, length) in common_endings(recent).into_iter().enumerate().skip(1) {
            let length = length.min(reach);
            if length >= allowed {
                let follower = recent[recent.len() - ending];
                let known = longest.entry(follower).or_insert(length);
                *known = length.max(*known);
            }
        }
        longest
    }

    /// How many of the last tokens stand behind the last breaker.
    fn unbroken(&self, recent: &[u32]) -> usize {
        for (index, token) in recent.iter().enumerate().rev() {
            let Some(all) = self.params.breakers.get(token) else { continue };
            let rest = &recent[index + 1..];
            let found = all.iter().filter(|followers| rest.starts_with(followers));
            if let Some(length) = found.map(Vec::len).max() {
                return rest.len() - length;
            }
        }
        recent.len()
    }
}

/// For each number of tokens that are dropped from the end, how many of the tokens before them
/// equal the very last ones (the Z array of the reversed tokens; Gusfield 1997).
fn common_endings(tokens: &[u32]) -> Vec<usize> {
    let count = tokens.len();
    let at = |index: usize| tokens[count - 1 - index];
    let mut lengths = vec![0; count];
    let (mut left, mut right) = (0, 0);
    for start in 1..count {
        let mut length = if start < right { lengths[start - left].min(right - start) } else { 0 };
        while start + length < count && at(length) == at(start + length) {
            length += 1;
        }
        if start + length > right {
            (left, right) = (start, start + length);
        }
        lengths[start] = length;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn params(allowed_length: usize) -> DryParams {
        DryParams {
            multiplier: 0.5,
            base: 2.0,
            allowed_length,
            last_n: None,
            breakers: Arc::default(),
        }
    }

    fn repetitions(params: DryParams, tokens: &[u32]) -> Vec<(u32, usize)> {
        let mut found: Vec<_> = Dry::new(params, tokens).repetitions().into_iter().collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn the_token_behind_the_longest_repetition_costs_most() {
        // "1 2 3" came twice before: once followed by 7, once by 9 behind the same 5.
        let tokens = [1, 2, 3, 7, 5, 1, 2, 3, 9, 5, 1, 2, 3];
        assert_eq!(repetitions(params(2), &tokens), [(7, 3), (9, 4)]);
        assert_eq!(repetitions(params(4), &tokens), [(9, 4)]);
        let mut logits = vec![0.0; 10];
        Dry::new(params(2), &tokens).apply(&mut logits);
        assert!((logits[7] + 1.0).abs() < 1e-6 && (logits[9] + 2.0).abs() < 1e-6);
        assert!(logits.iter().filter(|logit| **logit < 0.0).count() == 2);
    }

    #[test]
    fn breakers_and_the_window_cut_repetitions() {
        let tokens = [1, 2, 3, 7, 5, 1, 2, 3, 9, 5, 1, 2, 3];
        let broken = |followers: Vec<Vec<u32>>| DryParams {
            breakers: Arc::new(HashMap::from([(1, followers)])),
            ..params(2)
        };
        assert_eq!(repetitions(broken(vec![vec![]]), &tokens), [(7, 2), (9, 2)]);
        assert_eq!(repetitions(broken(vec![vec![2, 4]]), &tokens), [(7, 3), (9, 4)]);
        let allowing_one = DryParams { allowed_length: 1, ..broken(vec![vec![2, 4], vec![2]]) };
        assert_eq!(repetitions(allowing_one, &tokens), [(7, 1), (9, 1)]);
        let window = DryParams { last_n: Some(8), ..params(2) };
        assert_eq!(repetitions(window, &tokens), [(9, 3)]);
        let none = DryParams { last_n: Some(0), ..params(1) };
        assert_eq!(repetitions(none, &tokens), []);
    }

    #[test]
    fn endless_repetitions_stay_finite() {
        let mut logits = vec![0.0; 4];
        Dry::new(params(1), &vec![3; 5000]).apply(&mut logits);
        assert!(logits[3] < -9e29 && logits[3].is_finite());
    }

    proptest! {
        #[test]
        fn endings_are_those_found_by_looking(tokens in prop::collection::vec(0..3u32, 0..40)) {
            let lengths = common_endings(&tokens);
            for dropped in 1..tokens.len() {
                let before = &tokens[..tokens.len() - dropped];
                let ends = before.iter().rev().zip(tokens.iter().rev());
                let plain = ends.take_while(|(a, b)| a == b).count();
                prop_assert_eq!(lengths[dropped], plain);
            }
        }
    }
}
