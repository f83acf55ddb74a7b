//! Whole engines on fixtures, and requests whose answers are compared bit by bit.

use std::sync::Arc;

use sconce::config::EngineConfig;
use sconce::engine::EngineHandle;
use sconce::engine::output::{EngineOutput, Foreseen, OutputStream};
use sconce::engine::request::{EngineRequest, RequestId};
use sconce::engine::startup::Loaded;
use sconce::metrics;
use sconce::sampling::params::SamplingParams;
use sconce::scheduler::stop::StopConditions;
use sconce::weights::source::ModelSource;

use super::{open, prompt};

/// Tokens of the fixtures' vocabularies.
pub(super) const VOCAB: u32 = 160;

/// Tokens, and the bits of the logprobs of all tokens at each place.
pub(super) type Answer = (Vec<u32>, Vec<Vec<(u32, u32)>>);

/// Starts an engine on a fixture, whose answers don't depend on its company on a GPU either.
pub(super) fn start(name: &str, config: &EngineConfig) -> EngineHandle {
    start_with(&open(name), None, config)
}

/// The same of any model, with what drafts for it if that is a file of its own.
pub(super) fn start_with(
    source: &ModelSource,
    drafter: Option<&ModelSource>,
    config: &EngineConfig,
) -> EngineHandle {
    let config = EngineConfig { deterministic: true, ..config.clone() };
    let mut loaded = Loaded::load(source, &config, Arc::new(|_, _| {}), None).unwrap();
    if let Some(drafter) = drafter {
        loaded = loaded.with_draft(drafter, &config, Arc::new(|_, _| {})).unwrap();
    }
    loaded.start(&config, metrics::install(&source.name)).unwrap().handle
}

/// A request that draws with `seed` and tells the logprobs of all tokens.
pub(super) fn request(prompt: &[u32], max_tokens: usize, seed: u64) -> EngineRequest {
    EngineRequest {
        id: RequestId::next(),
        prompt_token_ids: prompt.to_vec(),
        sampling: SamplingParams { seed, logprobs: Some(VOCAB), ..SamplingParams::default() },
        stop: StopConditions {
            max_tokens,
            min_tokens: 0,
            eos_token_ids: Arc::from([]),
            stop_token_ids: Vec::new(),
            ignore_eos: true,
        },
        prediction: None,
        max_drafts: None,
        prompt_logprobs: None,
        priority: 0,
        share: 0,
        cache_salt: None,
        adapter: None,
        pictures: Vec::new(),
        sounds: Vec::new(),
    }
}

/// The answer, tokens found in the cache, and preemptions.
pub(super) fn collect(stream: OutputStream) -> (Answer, usize, u32) {
    collect_noting(stream, |_| ())
}

/// The same; `note` is told how each token was foreseen.
pub(super) fn collect_noting(
    mut stream: OutputStream,
    mut note: impl FnMut(Foreseen),
) -> (Answer, usize, u32) {
    let mut answer = Answer::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        loop {
            match stream.next().await.expect("an end comes") {
                EngineOutput::Token { token_id, logprobs, foreseen } => {
                    note(foreseen);
                    answer.0.push(token_id);
                    let top = logprobs.into_iter().flat_map(|logprobs| logprobs.top);
                    answer.1.push(top.map(|(token, logprob)| (token, logprob.to_bits())).collect());
                }
                EngineOutput::Finished { stats, .. } => {
                    return (answer, stats.cached_tokens, stats.preemptions);
                }
                EngineOutput::Started { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    })
}

/// The answer to one request, and tokens found in the cache.
pub(super) fn one(engine: &EngineHandle, request: EngineRequest) -> (Answer, usize) {
    let (answer, cached, _) = collect(engine.submit(request));
    (answer, cached)
}

/// A prompt that parts from `prompt(300, ..)` after `shared` tokens.
pub(super) fn sibling(shared: usize, length: u32) -> Vec<u32> {
    let mut tokens = prompt(300, VOCAB)[..shared].to_vec();
    tokens.extend(prompt(length, VOCAB).iter().map(|token| (token + length) % VOCAB));
    tokens
}
