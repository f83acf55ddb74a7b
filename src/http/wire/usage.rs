//! What an answer cost: token counts and times, as they stand in responses.

use serde::Serialize;
use utoipa::ToSchema;

/// Token counts of a whole request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Usage {
    /// Tokens of all prompts; a prompt counts once however many choices it has.
    pub(crate) prompt_tokens: usize,
    /// Tokens sampled for all choices, the ones that ended them included.
    pub(crate) completion_tokens: usize,
    /// The sum.
    pub(crate) total_tokens: usize,
    /// What the prompt tokens were.
    pub(crate) prompt_tokens_details: PromptTokensDetails,
    /// What the sampled tokens were.
    pub(crate) completion_tokens_details: CompletionTokensDetails,
}

/// The usage in a stream's chunk, if it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum ChunkUsage {
    /// `null`: it comes in the last chunk.
    Later,
    /// So far, or in all.
    Now(Usage),
}

/// Part of [`Usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct PromptTokensDetails {
    /// Prompt tokens that did not have to be computed.
    pub(crate) cached_tokens: usize,
}

/// Part of [`Usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "OpenAI's names")]
pub(crate) struct CompletionTokensDetails {
    /// Tokens of reasoning, where a parser tells it from the answer.
    pub(crate) reasoning_tokens: usize,
    /// Tokens that the request's predicted text had as well, where it was compared with the answer.
    pub(crate) accepted_prediction_tokens: usize,
    /// Tokens in whose place the predicted text had others.
    pub(crate) rejected_prediction_tokens: usize,
}

/// Where the time went, the slowest choice of a request counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Timings {
    /// Waiting to be scheduled.
    pub(crate) queue_ms: f64,
    /// From the first scheduled step to the first token.
    pub(crate) prefill_ms: f64,
    /// From the first token to the last.
    pub(crate) decode_ms: f64,
    /// Tokens of all choices after their first, per second of decoding.
    pub(crate) tokens_per_second: f64,
    /// The same in llama.cpp's words, which its clients read.
    #[serde(flatten)]
    pub(crate) phases: Phases,
}

/// Tokens and times of the prompt and of the answer, in llama.cpp's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct Phases {
    /// Prompt tokens that did not have to be computed.
    pub(crate) cache_n: usize,
    /// Prompt tokens that were computed.
    pub(crate) prompt_n: usize,
    pub(crate) prompt_ms: f64,
    pub(crate) prompt_per_token_ms: f64,
    pub(crate) prompt_per_second: f64,
    /// Tokens sampled for all choices.
    pub(crate) predicted_n: usize,
    pub(crate) predicted_ms: f64,
    pub(crate) predicted_per_token_ms: f64,
    pub(crate) predicted_per_second: f64,
    /// Tokens that were drafted, if any were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) draft_n: Option<usize>,
    /// Those of them that were sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) draft_n_accepted: Option<usize>,
}
