//! What an answer cost: token counts and times, as they stand in responses.

use serde::Serialize;

/// Token counts of a whole request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Tokens of all prompts; a prompt counts once however many choices it has.
    pub prompt_tokens: usize,
    /// Tokens sampled for all choices, the ones that ended them included.
    pub completion_tokens: usize,
    /// The sum.
    pub total_tokens: usize,
    /// What the prompt tokens were.
    pub prompt_tokens_details: PromptTokensDetails,
    /// What the sampled tokens were.
    pub completion_tokens_details: CompletionTokensDetails,
}

/// Part of [`Usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PromptTokensDetails {
    /// Prompt tokens that did not have to be computed.
    pub cached_tokens: usize,
}

/// Part of [`Usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompletionTokensDetails {
    /// Tokens of reasoning, where a parser tells it from the answer.
    pub reasoning_tokens: usize,
}

/// Where the time went, the slowest choice of a request counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Timings {
    /// Waiting to be scheduled.
    pub queue_ms: f64,
    /// From the first scheduled step to the first token.
    pub prefill_ms: f64,
    /// From the first token to the last.
    pub decode_ms: f64,
    /// Tokens of all choices after their first, per second of decoding.
    pub tokens_per_second: f64,
}
