//! From requests to the sequences that the scheduler runs for them.

use super::adapters::Adapters;
use super::sights::Sights;
use crate::config::Pooling;
use crate::engine::adapter::Adapter;
use crate::engine::request::{EmbeddingRequest, EngineRequest};
use crate::sampling::SamplerState;
use crate::scheduler::sequence::{PooledTokens, Sequence, SequenceId};
use crate::scheduler::shares::ShareId;
use crate::scheduler::stop::StopConditions;

/// The sequence of a prompt to continue, and its sampler.
pub(super) fn to_generate(
    request: EngineRequest,
    adapters: &mut Adapters,
    sights: &mut Sights,
) -> (Sequence, SamplerState) {
    let EngineRequest {
        id,
        prompt_token_ids,
        sampling,
        stop,
        prediction: _,
        max_drafts: _,
        prompt_logprobs,
        priority,
        share,
        cache_salt,
        adapter,
        pictures,
        sounds,
    } = request;
    let suppressed = stop.suppressed_before_min_tokens();
    let sampler = SamplerState::new(sampling, &prompt_token_ids, stop.min_tokens, suppressed);
    let (id, salt) = (SequenceId(id.0), cache_salt.as_deref());
    let name = adapter.as_ref().map(Adapter::shared_name);
    let sequence = Sequence::new(id, prompt_token_ids, stop, priority, salt)
        .with_share(ShareId(share))
        .with_adapter(adapters.take(adapter))
        .with_adapter_name(name)
        .with_media(sights.take(pictures, sounds));
    let scored = prompt_logprobs.is_some();
    (if scored { sequence.with_scored_prompt() } else { sequence }, sampler)
}

/// The sequence of a text to embed by `pooling`, or token by token: it samples nothing.
pub(super) fn to_embed(
    request: EmbeddingRequest,
    adapters: &mut Adapters,
    pooling: Option<Pooling>,
) -> Sequence {
    let EmbeddingRequest { id, token_ids, priority, share, cache_salt, adapter, .. } = request;
    let (id, salt) = (SequenceId(id.0), cache_salt.as_deref());
    let name = adapter.as_ref().map(Adapter::shared_name);
    Sequence::new(id, token_ids, nothing_to_stop(), priority, salt)
        .with_share(ShareId(share))
        .with_adapter(adapters.take(adapter))
        .with_adapter_name(name)
        .with_pooled(pooled_tokens(pooling))
}

/// The tokens whose hidden states a way of pooling reads.
fn pooled_tokens(pooling: Option<Pooling>) -> PooledTokens {
    match pooling {
        Some(Pooling::Last) => PooledTokens::Last,
        Some(Pooling::Cls) => PooledTokens::First,
        Some(
            Pooling::Mean
            | Pooling::Max
            | Pooling::MeanSqrtLen
            | Pooling::WeightedMean
            | Pooling::Splade,
        )
        | None => PooledTokens::All,
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
