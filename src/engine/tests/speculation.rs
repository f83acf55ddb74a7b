//! Speculative decoding: the same tokens, log-probabilities and ends as without, whatever is drafted.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::sampling::params::DryParams;

/// Requests of the property test: a few hundred, or as many as `SCONCE_TEST_REQUESTS` says.
pub(super) fn num_requests() -> usize {
    let told = std::env::var("SCONCE_TEST_REQUESTS").ok();
    told.and_then(|told| told.parse().ok()).unwrap_or(240)
}

/// Tokens with the bits of their logprobs, and why there are no more.
pub(super) type Exact = (Vec<(u32, Option<u32>)>, FinishReason);

fn repeating(memory: Memory, config: &EngineConfig) -> Running {
    let tokens_run = Arc::new(AtomicUsize::new(0));
    // Steps that cost the same whatever is in them: drafts are worth a try.
    let step_time = Duration::from_micros(500);
    let model = HashModel { tokens_run, step_time, memory, repeats: true, tells: false };
    start_model(model, config, Arc::new(Disk)).0
}

pub(super) fn exact(running: &Running, requests: &[EngineRequest]) -> Vec<Exact> {
    let again =
        |request: &EngineRequest| EngineRequest { id: RequestId::next(), ..request.clone() };
    let streams: Vec<_> = requests.iter().map(|r| running.handle.submit(again(r))).collect();
    block_on(async {
        let mut all = Vec::new();
        for mut stream in streams {
            let mut tokens = Vec::new();
            all.push(loop {
                match stream.next().await.expect("an end comes first") {
                    EngineOutput::Token { token_id, logprobs, .. } => {
                        let logprob = logprobs.map(|logprobs| logprobs.logprob.to_bits());
                        tokens.push((token_id, logprob));
                    }
                    EngineOutput::Finished { reason, .. } => break (tokens, reason),
                    EngineOutput::Failed(error) => panic!("{error}"),
                    _ => {}
                }
            });
        }
        all
    })
}

/// A request of random length with random features.
pub(super) fn random(random: &mut StdRng) -> EngineRequest {
    let shared = prompt(99, 70);
    let mut tokens = if random.random_bool(0.4) { shared } else { Vec::new() };
    tokens.extend(prompt(random.random_range(0..20), random.random_range(1..80)));
    let mut request = request(tokens, random.random_range(1..60), random.random());
    let sampling = &mut request.sampling;
    sampling.logprobs = [None, Some(0), Some(3)][random.random_range(0..3)];
    sampling.temperature = [0.0, 0.7, 1.0, 1.5][random.random_range(0..4)];
    sampling.top_p = [1.0, 0.9][random.random_range(0..2)];
    sampling.top_k = [0, 20][random.random_range(0..2)];
    if random.random_bool(0.2) {
        sampling.repetition_penalty = 1.2;
        sampling.frequency_penalty = 0.3;
        sampling.repeat_last_n = [None, Some(16)][random.random_range(0..2)];
    }
    if random.random_bool(0.15) {
        sampling.dry = Some(DryParams {
            multiplier: 0.8,
            base: 1.75,
            allowed_length: 2,
            last_n: None,
            breakers: Arc::default(),
        });
    }
    if random.random_bool(0.15) {
        sampling.xtc_probability = 0.5;
    }
    if random.random_bool(0.15) {
        sampling.bad_words = vec![vec![random.random_range(0..FAILS)], vec![1, 2]];
    }
    if random.random_bool(0.3) {
        request.stop.eos_token_ids = Arc::from([random.random_range(0..FAILS)]);
        request.stop.min_tokens = random.random_range(0..8).min(request.stop.max_tokens);
    }
    if random.random_bool(0.2) {
        request.stop.stop_token_ids = vec![random.random_range(0..FAILS)];
    }
    request.max_drafts = [None, Some(1), Some(5), Some(0)][random.random_range(0..4)];
    request.priority = random.random_range(-1..2);
    request
}

/// What the answer is, with a few changes.
pub(super) fn predicted(answer: &Exact, random: &mut StdRng) -> Vec<u32> {
    let tokens = answer.0.iter().map(|(token, _)| *token);
    tokens.filter(|_| random.random_bool(0.95)).collect()
}

pub(super) fn count(running: &Running, name: &str) -> u64 {
    let text = running.metrics.render();
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// Configurations with room for so many blocks of the cache, all of which answer alike.
pub(super) fn cases(scale: usize) -> [(&'static str, EngineConfig); 5] {
    let config = |num_blocks| config(scale * num_blocks);
    [
        ("in one batch", config(64)),
        ("in small chunks", EngineConfig { max_num_batched_tokens: 17, ..config(64) }),
        ("with preemption", config(14)),
        ("without cache", EngineConfig { prefix_cache: false, ..config(40) }),
        ("two at a time", EngineConfig { max_num_seqs: 2, ..config(32) }),
    ]
}

/// Asks `num_requests` random requests of `running` and of `plain`, which must answer alike.
pub(super) fn compare(
    case: &str,
    running: &Running,
    plain: &Running,
    num_requests: usize,
    rng: &mut StdRng,
) {
    let mut left = num_requests;
    while left > 0 {
        let mut requests: Vec<_> = (0..left.min(16)).map(|_| random(rng)).collect();
        left -= requests.len();
        let expected = exact(plain, &requests);
        for (request, answer) in requests.iter_mut().zip(&expected) {
            if rng.random_bool(0.3) {
                request.prediction = Some(predicted(answer, rng));
            }
        }
        let found = exact(running, &requests);
        for ((found, expected), request) in found.iter().zip(&expected).zip(&requests) {
            assert_eq!(found, expected, "{case}: {request:?}");
        }
    }
    running.assert_idle();
    assert_eq!(count(plain, "vllm:spec_decode_num_draft_tokens_total"), 0);
    let accepted = count(running, "vllm:spec_decode_num_accepted_tokens_total");
    assert!(accepted > 0, "{case}: nothing was drafted");
}

#[test]
fn answers_are_those_of_decoding_token_by_token() {
    let mut rng = StdRng::seed_from_u64(7);
    let memories = [Memory::Blocks, Memory::State, Memory::StateAlone];
    let of_each = num_requests().div_ceil(cases(1).len() * memories.len());
    for memory in memories {
        let plain = repeating(memory, &EngineConfig { draft_max: 0, ..config(64) });
        for (case, config) in cases(1) {
            let running = repeating(memory, &config);
            compare(&format!("{case}, {memory:?}"), &running, &plain, of_each, &mut rng);
        }
    }
}

#[test]
fn a_prediction_saves_steps_and_is_counted_the_same_whatever_is_drafted() {
    let running = repeating(Memory::Blocks, &config(64));
    let mut asked = request(prompt(3, 40), 60, 5);
    asked.sampling.temperature = 0.0;
    let answer = exact(&running, std::slice::from_ref(&asked)).remove(0);
    let mut text: Vec<u32> = answer.0.iter().map(|(token, _)| *token).collect();
    text[20] += 1;
    let mut told = Vec::new();
    for (max_drafts, most_steps) in [(Some(0), 60), (None, 30)] {
        let request = EngineRequest { prediction: Some(text.clone()), max_drafts, ..asked.clone() };
        let request = EngineRequest { id: RequestId::next(), ..request };
        let mut stream = running.handle.submit(request);
        let (mut outcomes, mut accepted, mut drafted) = (Vec::new(), 0, 0);
        block_on(async {
            while let Some(output) = stream.next().await {
                if let EngineOutput::Token { foreseen, .. } = output {
                    outcomes.push(foreseen.predicted);
                    accepted += usize::from(foreseen.accepted);
                    drafted += foreseen.drafted as usize;
                }
            }
        });
        let right = outcomes.iter().filter(|outcome| **outcome == Some(true)).count();
        assert!(right > 50 && outcomes[20] == Some(false), "{outcomes:?}");
        told.push(outcomes);
        assert!(60 - accepted <= most_steps && drafted >= accepted, "{accepted} of {drafted}");
        assert_eq!(drafted == 0, max_drafts == Some(0));
    }
    assert_eq!(told[0], told[1]);
}

#[test]
fn an_answer_that_is_asked_for_again_is_drafted_from_the_first() {
    let running = repeating(Memory::Blocks, &EngineConfig { prefix_cache: false, ..config(64) });
    let mut asked = request((0..40).collect(), 60, 5);
    asked.sampling.temperature = 3.0;
    let accepted = || count(&running, "vllm:spec_decode_num_accepted_tokens_total");
    let first = exact(&running, std::slice::from_ref(&asked));
    let before = accepted();
    assert_eq!(exact(&running, std::slice::from_ref(&asked)), first);
    assert!(accepted() > before + 30, "{} of 60", accepted() - before);
    let salted = EngineRequest { cache_salt: Some("another".to_owned()), ..asked };
    let before = accepted();
    assert_eq!(exact(&running, &[salted]), first);
    assert!(accepted() < before + 20, "{} of 60", accepted() - before);
}
