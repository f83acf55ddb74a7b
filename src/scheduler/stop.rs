//! When a sequence ends, by token ids and counts alone. Stop strings are text and live above.

use std::sync::Arc;

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-sequence token of the model was sampled.
    Eos,
    /// A token of the request's `stop_token_ids` was sampled.
    StopToken(u32),
    /// `max_tokens` or the model's context length was reached.
    Length,
}

/// The conditions under which a sequence ends, checked after every sampled token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopConditions {
    /// Most tokens to sample, at least 1.
    pub max_tokens: usize,
    /// Before this many tokens, end-of-sequence and stop tokens can't be sampled.
    pub min_tokens: usize,
    /// The model's end-of-sequence ids.
    pub eos_token_ids: Arc<[u32]>,
    /// Further ids that end this request.
    pub stop_token_ids: Vec<u32>,
    /// Don't end at `eos_token_ids`.
    pub ignore_eos: bool,
}

impl StopConditions {
    /// The reason to end after `token` was appended as the `num_output`-th output token.
    pub fn check(&self, token: u32, num_output: usize) -> Option<FinishReason> {
        if num_output >= self.min_tokens {
            if self.stop_token_ids.contains(&token) {
                return Some(FinishReason::StopToken(token));
            }
            if !self.ignore_eos && self.eos_token_ids.contains(&token) {
                return Some(FinishReason::Eos);
            }
        }
        (num_output >= self.max_tokens).then_some(FinishReason::Length)
    }

    /// The ids that must not be sampled while fewer than `min_tokens` were sampled.
    pub fn suppressed_before_min_tokens(&self) -> Vec<u32> {
        let eos = if self.ignore_eos { &[] } else { &self.eos_token_ids[..] };
        self.stop_token_ids.iter().chain(eos).copied().collect()
    }
}
