//! From requests to the sequences that the scheduler runs for them.

use super::adapters::Adapters;
use crate::config::Pooling;
use crate::engine::request::{EmbeddingRequest, EngineRequest};
use crate::sampling::SamplerState;
use crate::scheduler::sequence::{PooledTokens, Sequence, SequenceId};
use crate::scheduler::stop::StopConditions;

/// The sequence of a prompt to continue, and its sampler.
pub(super) fn to_generate(
    request: EngineRequest,
    adapters: &mut Adapters,
) -> (Sequence, SamplerState) {
    let EngineRequest {
        id,
        prompt_token_ids,
        sampling,
        stop,
        prompt_logprobs,
        priority,
        cache_salt,
        adapter,
    } = request;
    let suppressed = stop.suppressed_before_min_tokens();
    let sampler = SamplerState::new(sampling, &prompt_token_ids, stop.min_tokens, suppressed);
    let (id, salt) = (SequenceId(id.0), cache_salt.as_deref());
    let sequence = Sequence::new(id, prompt_token_ids, stop, priority, salt)
        .with_adapter(adapters.take(adapter));
    let scored = prompt_logprobs.is_some();
    (if scored { sequence.with_scored_prompt() } else { sequence }, sampler)
}

/// The sequence of a text to embed by `pooling`: it samples nothing.
pub(super) fn to_embed(
    request: EmbeddingRequest,
    adapters: &mut Adapters,
    pooling: Pooling,
) -> Sequence {
    let EmbeddingRequest { id, token_ids, priority, cache_salt, adapter, .. } = request;
    let (id, salt) = (SequenceId(id.0), cache_salt.as_deref());
    Sequence::new(id, token_ids, nothing_to_stop(), priority, salt)
        .with_adapter(adapters.take(adapter))
        .with_pooled(pooled_tokens(pooling))
}

/// The tokens whose hidden states a way of pooling reads.
fn pooled_tokens(pooling: Pooling) -> PooledTokens {
    match pooling {
        Pooling::Last => PooledTokens::Last,
        Pooling::Cls => PooledTokens::First,
        Pooling::Mean | Pooling::Max | Pooling::MeanSqrtLen | Pooling::WeightedMean => {
            PooledTokens::All
        }
    }
}

/// Stop conditions of a sequence that samples nothing.
fn nothing_to_stop() -> StopConditions {
    StopConditions {
        max_tokens: 1,
        min_tokens: 0,
        eos_token_ids: [].into(),
        stop_token_ids: Vec::new(),
        ignore_eos: false,
    }
}
