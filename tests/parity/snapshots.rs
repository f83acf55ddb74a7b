//! Hybrids over the whole engine: a sequence that resumes from a snapshot of its states has the bits of
//! one that is computed from its first token on.

use std::sync::Arc;

use sconce::config::EngineConfig;
use sconce::engine::EngineHandle;
use sconce::engine::request::BeamRequest;
use sconce::engine::startup::Loaded;
use sconce::metrics;
use sconce::sampling::params::{BeamParams, EarlyStopping};

use super::engine::{VOCAB, collect, one, request, sibling, start};
use super::{open, prompt};

/// Fixtures with recurrent layers, of every kind.
const HYBRIDS: &[&str] =
    &["bamba", "granite_hybrid", "lfm2", "mamba2", "nemotron_h", "qwen3_5", "qwen3_next"];

fn config() -> EngineConfig {
    EngineConfig {
        max_num_seqs: 4,
        max_num_batched_tokens: 128,
        target_step_time: None,
        max_model_len: Some(512),
        kv_cache_bytes: Some(64 << 20),
        deterministic: true,
        ..EngineConfig::default()
    }
}

/// An engine that computes every request alone and from its first token on.
fn cold(name: &str) -> EngineHandle {
    start(name, &EngineConfig { prefix_cache: false, max_num_seqs: 1, ..config() })
}

#[test]
fn a_hit_has_the_bits_of_a_cold_start() {
    for name in HYBRIDS {
        // No state is kept between, in prompts as short as these.
        let config = EngineConfig { max_num_batched_tokens: 512, ..config() };
        let (cold, warm) = (cold(name), start(name, &config));
        let first = prompt(300, VOCAB);
        let said = one(&cold, request(&first, 40, 0)).0.0;
        // Sent again, parted from, and gone on with behind the answer.
        let turn = [&first[..], &said, &prompt(30, VOCAB)].concat();
        let parted = [sibling(130, 90), sibling(130, 80), sibling(100, 70)];
        let sent = [&first, &first, &first, &turn, &parted[0], &parted[1], &parted[2]];
        let expected_hits = [0, 288, 288, 320, 0, 128, 0];
        for (index, (tokens, hit)) in sent.into_iter().zip(expected_hits).enumerate() {
            let (expected, none) = one(&cold, request(tokens, 40, 0));
            assert_eq!(none, 0);
            let (answer, cached) = one(&warm, request(tokens, 40, 0));
            assert_eq!(cached, hit, "{name}, request {index}");
            assert!(answer == expected, "{name}, request {index}");
        }
    }
}

#[test]
fn hits_in_company_in_chunks_and_after_preemption_have_the_same_bits() {
    let prompts: Vec<Vec<u32>> = [
        prompt(300, VOCAB),
        sibling(200, 50),
        prompt(300, VOCAB),
        sibling(200, 64),
        prompt(65, VOCAB),
        sibling(128, 130),
        prompt(1, VOCAB),
    ]
    .into();
    for name in HYBRIDS {
        let cold = cold(name);
        let requests = || {
            // Some prompts come twice, as for several choices, with seeds of their own.
            let all = prompts.iter().chain(&prompts[..2]).zip(0..);
            all.map(|(tokens, seed)| request(tokens, 45, seed)).collect::<Vec<_>>()
        };
        let expected: Vec<_> =
            requests().into_iter().map(|request| one(&cold, request).0).collect();
        let cases = [
            ("in company", config()),
            ("in chunks", EngineConfig { max_num_batched_tokens: 37, ..config() }),
            ("with few blocks", few_blocks(name)),
        ];
        for (case, config) in cases {
            let engine = start(name, &config);
            let (mut hits, mut preempted) = (0, 0);
            for round in ["first", "second"] {
                let streams: Vec<_> = requests().into_iter().map(|r| engine.submit(r)).collect();
                for (stream, expected) in streams.into_iter().zip(&expected) {
                    let (answer, cached, preemptions) = collect(stream);
                    assert!(answer == *expected, "{name} {case}, {round} round");
                    hits += cached;
                    preempted += preemptions;
                }
            }
            assert!(hits > 0, "{name} {case}");
            // Mamba 2 has no KV cache that could be too small.
            assert!(case != "with few blocks" || *name == "mamba2" || preempted > 0, "{name}");
        }
    }
}

/// Memory for the states of four sequences and those from before their drafts, four snapshots and hardly
/// more than one long sequence.
fn few_blocks(name: &str) -> EngineConfig {
    let config = EngineConfig { prefix_cache: false, ..config() };
    let loaded = Loaded::load(&open(name), &config, Arc::new(|_, _| {}), None).unwrap();
    let plan = loaded.start(&config, metrics::install(name)).unwrap().plan.unwrap();
    let [state, block] = [plan.facts.state_bytes, plan.facts.block_bytes];
    let others = (8 * state + 18 * block).max(16 * state);
    EngineConfig {
        kv_cache_bytes: Some(4 * state + others),
        state_cache_bytes: Some(4 * state),
        ..self::config()
    }
}

#[test]
fn beams_behind_a_hit_are_those_of_a_cold_search() {
    let beams = BeamParams {
        width: 4,
        answers: 4,
        length_penalty: 1.0,
        early_stopping: EarlyStopping::Never,
    };
    let search = |engine: &EngineHandle| {
        let request = request(&prompt(300, VOCAB), 40, 0);
        let streams = engine.search(BeamRequest { request, beams });
        streams
            .into_iter()
            .map(collect)
            .map(|(answer, cached, _)| (answer, cached))
            .collect::<Vec<_>>()
    };
    for name in HYBRIDS {
        let cold = start(name, &EngineConfig { prefix_cache: false, ..config() });
        let expected = search(&cold);
        let warm = start(name, &config());
        for round in 0..3 {
            let found = search(&warm);
            let cached = if round == 0 { 0 } else { 288 };
            for ((answer, hit), (expected, _)) in found.into_iter().zip(&expected) {
                assert_eq!(hit, cached, "{name}, search {round}");
                assert!(answer == *expected, "{name}, search {round}");
            }
        }
    }
}
