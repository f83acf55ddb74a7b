//! Drafts by a second model: the same answers, and all drafts right where it is the model itself, which
//! shows that it has computed every token of every sequence where it should.

use std::collections::HashMap;

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::speculation::{cases, compare, count, exact, num_requests};
use super::*;
use crate::engine::adapter::Adapter;
use crate::runner;

/// What a step of the model takes here; the draft model's takes no time.
pub(super) const STEP: Duration = Duration::from_millis(2);

pub(super) fn hash_model(memory: Memory, repeats: bool, step_time: Duration) -> HashModel {
    HashModel { tokens_run: Arc::default(), step_time, memory, repeats, tells: false }
}

/// An engine with a draft model that tells what `memory` tells from blocks.
fn drafted(memory: Memory, repeats: bool, config: &EngineConfig) -> Running {
    let draft = hash_model(Memory::Blocks, repeats, Duration::ZERO);
    let model = hash_model(memory, repeats, STEP);
    start_drafted(model, Some(Box::new(draft)), config, Arc::new(Disk)).0
}

/// One without.
pub(super) fn plain(memory: Memory, repeats: bool) -> Running {
    let config = EngineConfig { draft_max: 0, ..config(64) };
    start_model(hash_model(memory, repeats, Duration::ZERO), &config, Arc::new(Disk)).0
}

/// The usual requests, each three times, with the most likely tokens. They differ in their last tokens, so
/// that blocks are shared and no answer says what another will be.
pub(super) fn greedy(round: u32) -> Vec<EngineRequest> {
    let mut requests: Vec<_> = (0..3).flat_map(|_| requests()).collect();
    for (request, index) in requests.iter_mut().zip(30 * round..) {
        request.prompt_token_ids.push(index);
        request.id = RequestId::next();
        request.sampling.temperature = 0.0;
        request.prompt_logprobs = None;
    }
    requests
}

fn drafts(running: &Running) -> [u64; 2] {
    let names = ["draft_tokens", "accepted_tokens"];
    names.map(|name| count(running, &format!("vllm:spec_decode_num_{name}_total")))
}

/// Checks that answers are those of no drafts, and that next to all drafts of a model that knows better than
/// to guess are accepted.
pub(super) fn assert_drafts_are_right(start: impl Fn(Memory, &EngineConfig) -> Running) {
    for memory in [Memory::Blocks, Memory::State, Memory::StateAlone] {
        let plain = plain(memory, false);
        let expected = [0, 1].map(|round| exact(&plain, &greedy(round)));
        for (case, config) in cases(2) {
            let running = start(memory, &config);
            for (round, expected) in (0..).zip(&expected) {
                assert_eq!(exact(&running, &greedy(round)), *expected, "{case}, {memory:?}");
            }
            running.assert_idle();
            let [drafted, accepted] = drafts(&running);
            // Three tokens that stand somewhere by chance are drafted from too.
            let wrong = drafted - accepted;
            assert!(wrong <= drafted / 32, "{case}, {memory:?}: {wrong} of {drafted}");
            assert!(accepted > 20, "{case}, {memory:?}: {accepted}");
        }
    }
}

#[test]
fn the_model_itself_is_always_right() {
    // A block has a part for each of the two models.
    assert_drafts_are_right(|memory, config| drafted(memory, false, config));
}

#[test]
fn answers_with_a_draft_model_are_those_of_decoding_token_by_token() {
    let mut rng = StdRng::seed_from_u64(11);
    let memories = [Memory::Blocks, Memory::State, Memory::StateAlone];
    let of_each = num_requests().div_ceil(cases(2).len() * memories.len());
    for memory in memories {
        let plain = plain(memory, true);
        for (case, config) in cases(2) {
            let running = drafted(memory, true, &config);
            compare(&format!("{case}, {memory:?}"), &running, &plain, of_each, &mut rng);
        }
    }
}

/// The draft model has no adapters: its drafts are worse there, and answers are the same.
#[test]
fn answers_with_adapters_and_drafts_are_those_without_drafts() {
    let adapter = |size: usize| {
        let digest = [size as u8; 16];
        Adapter::new("a", digest, runner::Adapter::new(HashMap::new(), size))
    };
    let mixed = || {
        let mut requests = greedy(0);
        for (index, request) in requests.iter_mut().enumerate() {
            request.adapter = [None, Some(adapter(1)), Some(adapter(2))][index % 3].clone();
            request.sampling.temperature = [0.0, 1.0][index % 2];
        }
        requests
    };
    let expected = exact(&plain(Memory::Blocks, true), &mixed());
    for (case, config) in cases(2) {
        let running = drafted(Memory::Blocks, true, &config);
        for _ in 0..2 {
            assert_eq!(exact(&running, &mixed()), expected, "{case}");
        }
        running.assert_idle();
        let [drafted, accepted] = drafts(&running);
        assert!(0 < accepted && accepted < drafted, "{case}: {accepted} of {drafted}");
    }
}

/// A draft model that fails after some steps.
struct Failing {
    model: HashModel,
    steps: AtomicUsize,
    panics: bool,
}

impl CausalLm for Failing {
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
        if self.steps.fetch_add(1, Ordering::Relaxed) == 5 {
            assert!(!self.panics, "asked to panic");
            candle_core::bail!("asked to fail");
        }
        self.model.forward(context, batch)
    }

    fn hidden_size(&self) -> usize {
        self.model.hidden_size()
    }

    fn kv_shape(&self) -> KvShape {
        self.model.kv_shape()
    }

    fn vocab_size(&self) -> usize {
        VOCAB
    }

    fn max_position_embeddings(&self) -> usize {
        self.model.max_position_embeddings()
    }
}

#[test]
fn a_draft_model_that_fails_is_not_missed() {
    let expected = exact(&plain(Memory::Blocks, false), &greedy(0));
    for panics in [false, true] {
        let model = hash_model(Memory::Blocks, false, Duration::ZERO);
        let failing = Failing { model, steps: AtomicUsize::new(0), panics };
        let model = hash_model(Memory::Blocks, false, STEP);
        let running = start_drafted(model, Some(Box::new(failing)), &config(128), Arc::new(Disk)).0;
        assert_eq!(exact(&running, &greedy(0)), expected);
        running.assert_idle();
        let [drafted, accepted] = drafts(&running);
        assert!(0 < accepted, "{accepted} of {drafted}");
    }
}

/// A draft model with fewer tokens and positions drafts what it can.
#[test]
fn a_smaller_draft_model_drafts_no_further_than_it_reaches() {
    struct Short(HashModel);
    impl CausalLm for Short {
        fn forward(
            &self,
            context: &ForwardContext<'_>,
            batch: &ForwardBatch,
        ) -> Result<ForwardOutput> {
            assert!(batch.step.positions.iter().all(|position| *position < 60), "too far");
            assert!(batch.step.input_ids.iter().all(|token| *token < 90), "unknown");
            let output = self.0.forward(context, batch)?;
            Ok(ForwardOutput { logits: output.logits.narrow(1, 0, 90)?.contiguous()?, ..output })
        }

        fn hidden_size(&self) -> usize {
            self.0.hidden_size()
        }

        fn kv_shape(&self) -> KvShape {
            self.0.kv_shape()
        }

        fn vocab_size(&self) -> usize {
            90
        }

        fn max_position_embeddings(&self) -> usize {
            60
        }
    }
    let mut requests = greedy(0);
    for (request, index) in requests.iter_mut().zip(0..) {
        request.prompt_token_ids = prompt(index, 15).iter().map(|token| token % 90).collect();
    }
    let expected = exact(&plain(Memory::Blocks, false), &requests);
    let draft = Short(hash_model(Memory::Blocks, false, Duration::ZERO));
    let model = hash_model(Memory::Blocks, false, STEP);
    let running = start_drafted(model, Some(Box::new(draft)), &config(128), Arc::new(Disk)).0;
    assert_eq!(exact(&running, &requests), expected);
    assert!(drafts(&running)[1] > 0);
}
