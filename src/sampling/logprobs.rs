//! Logprobs of drawn tokens, of the distribution before filters and temperature.

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
