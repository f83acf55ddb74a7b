//! What the engine is asked to do.

use std::sync::atomic::{AtomicU64, Ordering};

use super::adapter::Adapter;
use crate::pictures::picture::PlacedPicture;
pub use crate::pooling::Wanted;
use crate::sampling::params::{BeamParams, SamplingParams};
use crate::scheduler::stop::StopConditions;
use crate::sounds::sound::PlacedSound;

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

/// One text to embed or to classify, or a pair of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingRequest {
    /// Unique in this process.
    pub id: RequestId,
    /// The text, not empty; it fits the model's context.
    pub token_ids: Vec<u32>,
    /// Of a pair: where the second text begins among the tokens.
    pub second_text: Option<usize>,
    /// How many of the last tokens no token sees, less than all: those that fill up a query. Only where
    /// whole texts are read.
    pub unseen: usize,
    /// What is wanted; of dimensions at least 1 and at most all.
    pub wanted: Wanted,
    /// Lower is served first among requests of one key; equal priorities in order of arrival.
    pub priority: i32,
    /// Tells the keys apart between which turns are taken by tokens.
    pub share: u64,
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
    /// Text that the answer may be, or be like; drafts come from there first.
    pub prediction: Option<Vec<u32>>,
    /// Most tokens to draft at a time; `None` leaves it to the server.
    pub max_drafts: Option<usize>,
    /// Report the logprobs of the prompt's tokens, and of this many most likely ones beside each.
    pub prompt_logprobs: Option<u32>,
    /// Lower is served first among requests of one key; equal priorities in order of arrival.
    pub priority: i32,
    /// Tells the keys apart between which turns are taken by tokens.
    pub share: u64,
    /// Prefix blocks are shared only between requests with equal salt.
    pub cache_salt: Option<String>,
    /// The LoRA adapter to compute with.
    pub adapter: Option<Adapter>,
    /// The pictures in the prompt, in order of position and apart from each other.
    pub pictures: Vec<PlacedPicture>,
    /// The sounds in the prompt, in order of position and apart from each other and from pictures.
    pub sounds: Vec<PlacedSound>,
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
