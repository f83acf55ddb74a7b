//! What the engine is asked to do.

use std::sync::atomic::{AtomicU64, Ordering};

use super::adapter::Adapter;
use crate::sampling::params::{BeamParams, SamplingParams};
use crate::scheduler::stop::StopConditions;

/// Identifies one engine request within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl RequestId {
    /// An id that no other request of this process has.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// One text to embed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingRequest {
    /// Unique in this process.
    pub id: RequestId,
    /// The text, not empty; it fits the model's context.
    pub token_ids: Vec<u32>,
    /// Keep so many of the first elements, at least 1 and at most all; `None` keeps all.
    pub dimensions: Option<usize>,
    /// Scale to length 1; `None` does what the model does.
    pub normalize: Option<bool>,
    /// Lower is served first; equal priorities in order of arrival.
    pub priority: i32,
    /// Prefix blocks are shared only between requests with equal salt.
    pub cache_salt: Option<String>,
    /// The LoRA adapter to compute with.
    pub adapter: Option<Adapter>,
}

/// One sequence to continue. A chat request with `n = 3` is three of these; equal prompts share
/// their full KV blocks whether or not they come from one HTTP request.
#[derive(Clone, Debug)]
pub struct EngineRequest {
    /// Unique in this process.
    pub id: RequestId,
    /// The prompt, not empty; with `stop.max_tokens` it fits the model's context.
    pub prompt_token_ids: Vec<u32>,
    /// How tokens are sampled.
    pub sampling: SamplingParams,
    /// When the sequence ends.
    pub stop: StopConditions,
    /// Report the logprobs of the prompt's tokens, and of this many most likely ones beside each.
    pub prompt_logprobs: Option<u32>,
    /// Lower is served first; equal priorities in order of arrival.
    pub priority: i32,
    /// Prefix blocks are shared only between requests with equal salt.
    pub cache_salt: Option<String>,
    /// The LoRA adapter to compute with.
    pub adapter: Option<Adapter>,
}

/// A prompt whose most likely continuations are searched for instead of sampled.
#[derive(Clone, Debug)]
pub struct BeamRequest {
    /// The prompt. Its sampling parameters change log-probabilities where they would change logits
    /// (bias, grammar, penalties); temperature and filters have no effect.
    pub request: EngineRequest,
    /// Width and end of the search.
    pub beams: BeamParams,
}
