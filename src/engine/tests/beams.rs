//! Searches over the engine's sequences, beside the same search over a tree of prompts.

use super::*;
use crate::engine::request::BeamRequest;
use crate::sampling::beams::{Beam, BeamSearch, Continuation};
use crate::sampling::logprobs::TokenLogprobs;
use crate::sampling::params::{BeamParams, EarlyStopping};

/// An end that is drawn now and then.
const END: u32 = 11;

pub(super) fn params(width: usize) -> BeamParams {
    BeamParams {
        width,
        answers: width,
        length_penalty: 1.0,
        early_stopping: EarlyStopping::Estimated,
    }
}

pub(super) fn searched(prompt: Vec<u32>, max_tokens: usize, beams: BeamParams) -> BeamRequest {
    let mut request = request(prompt, max_tokens, 0);
    request.sampling.logprobs = Some(0);
    request.stop.eos_token_ids = Arc::from([END]);
    BeamRequest { request, beams }
}

/// Asks the engine for one token of every beam of every step.
pub(super) fn expected(running: &Running, searched: &BeamRequest) -> Vec<Vec<u32>> {
    let BeamRequest { request, beams } = searched;
    let mut search = BeamSearch::new(*beams, request.stop.max_tokens);
    let count = search.num_continuations(1);
    let mut prompts = vec![request.prompt_token_ids.clone()];
    loop {
        let rows = prompts.iter().map(|prompt| {
            let mut one = super::request(prompt.clone(), 1, 0);
            one.sampling.logprobs = Some(u32::try_from(count).unwrap());
            one.adapter.clone_from(&request.adapter);
            let mut stream = running.handle.submit(one);
            let logprobs: TokenLogprobs = block_on(async {
                loop {
                    if let Some(EngineOutput::Token { logprobs, .. }) = stream.next().await {
                        break logprobs.unwrap();
                    }
                }
            });
            let row = logprobs.top.into_iter();
            let row = row.map(|(token_id, logprob)| Continuation {
                token_id,
                logprob: f64::from(logprob),
                reported: None,
            });
            row.collect()
        });
        let rows = rows.collect();
        let ends = |token, length| request.stop.check(token, length).is_some();
        let chosen = search.advance(rows, ends);
        if chosen.is_empty() {
            return search.answers().iter().map(|beam: &Beam| beam.token_ids.clone()).collect();
        }
        let next = chosen.iter().map(|chosen| {
            let mut prompt = prompts[chosen.parent].clone();
            prompt.push(chosen.token_id);
            prompt
        });
        prompts = next.collect();
    }
}

pub(super) fn found(streams: Vec<OutputStream>) -> Vec<Vec<u32>> {
    block_on(async {
        let mut answers = Vec::new();
        for stream in streams {
            let ((tokens, logprobs), end) = collect(stream).await;
            assert!(matches!(end, Some(EngineOutput::Finished { .. })), "{end:?}");
            assert_eq!(tokens.len(), logprobs.len());
            answers.push(tokens);
        }
        answers
    })
}

fn searches() -> Vec<BeamRequest> {
    let never = |width| BeamParams { early_stopping: EarlyStopping::Never, ..params(width) };
    vec![
        searched(prompt(1, 5), 40, params(4)),
        searched(prompt(2, 33), 70, never(6)),
        searched(prompt(3, 64), 20, BeamParams { answers: 1, ..never(3) }),
        searched(prompt(4, 31), 10, params(1)),
    ]
}

#[test]
fn beams_are_the_same_in_company_with_few_blocks_and_few_places() {
    let reference = start(&config(64), Duration::ZERO);
    let expected: Vec<_> = searches().iter().map(|search| expected(&reference, search)).collect();
    assert!(expected.iter().flatten().any(|tokens| tokens.last() == Some(&END)));
    assert!(expected.iter().flatten().any(|tokens| tokens.len() == 70));
    let cases = [
        ("with room", config(128)),
        ("with few blocks", config(10)),
        ("without cache", EngineConfig { prefix_cache: false, ..config(12) }),
        ("with fewer places than beams", EngineConfig { max_num_seqs: 2, ..config(32) }),
        ("in small steps", EngineConfig { max_num_batched_tokens: 9, ..config(24) }),
    ];
    let lone = alone();
    for (case, config) in cases {
        let config = EngineConfig {
            kv_cache_bytes: config.kv_cache_bytes.max(Some(10 * BLOCK_SIZE * 8)),
            ..config
        };
        for memory in [Memory::Blocks, Memory::State, Memory::StateAlone] {
            let running = start_with(memory, &config, Duration::ZERO);
            let others: Vec<_> = requests().into_iter().map(|r| running.handle.submit(r)).collect();
            let streams: Vec<_> =
                searches().into_iter().map(|search| running.handle.search(search)).collect();
            let answers: Vec<_> = streams.into_iter().map(found).collect();
            assert_eq!(answers, expected, "{case}, {memory:?}");
            let others = others.into_iter().map(|stream| block_on(collect(stream)).0);
            assert_eq!(others.collect::<Vec<_>>(), lone, "{case}, {memory:?}");
            running.assert_idle();
        }
    }
}

#[test]
fn beams_share_blocks_instead_of_computing_them_again() {
    for memory in [Memory::Blocks, Memory::State, Memory::StateAlone] {
        let running = start_with(memory, &config(64), Duration::ZERO);
        let answers = found(running.handle.search(searched(prompt(7, 100), 30, params(4))));
        let steps = answers.iter().map(Vec::len).max().unwrap();
        let computed = running.tokens_run.load(Ordering::Relaxed);
        assert!(computed <= 100 + 4 * steps, "{computed} tokens in {steps} steps, {memory:?}");
    }
}

#[test]
fn a_search_ends_with_the_last_answer_that_anybody_waits_for() {
    let running = start(&config(64), Duration::from_millis(2));
    let forever = BeamParams { early_stopping: EarlyStopping::Never, ..params(3) };
    let mut streams = running.handle.search(searched(prompt(8, 40), 300, forever));
    block_on(async {
        assert!(matches!(streams[0].next().await, Some(EngineOutput::Started { .. })));
    });
    drop(streams.pop());
    std::thread::sleep(Duration::from_millis(50));
    assert!(
        running
            .metrics
            .render()
            .contains("vllm:num_requests_running{model_name=\"test\",engine=\"0\"} 3")
    );
    streams.clear();
    running.assert_idle();
}

#[test]
fn a_failed_step_ends_its_search_and_nothing_else() {
    let running = start(&config(64), Duration::ZERO);
    let streams = running.handle.search(searched(vec![1, FAILS], 10, params(3)));
    for stream in streams {
        let (_, end) = block_on(collect(stream));
        assert!(matches!(end, Some(EngineOutput::Failed(EngineError::StepFailed(_)))), "{end:?}");
    }
    let streams = running.handle.search(searched(Vec::new(), 10, params(2)));
    for stream in streams {
        let (_, end) = block_on(collect(stream));
        assert!(matches!(end, Some(EngineOutput::Failed(EngineError::Rejected(_)))), "{end:?}");
    }
    running.assert_idle();
}
