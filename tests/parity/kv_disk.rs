//! Blocks and states that were stored by one engine and loaded by the next: the answers have the bits of
//! those that were computed from the first token on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sconce::config::{EngineConfig, KvCacheDtype, KvDisk, WeightKind};
use sconce::engine::startup::{Engine, Loaded};
use sconce::metrics;

use super::engine::{Answer, VOCAB, one, request, sibling, start};
use super::{open, prompt};

fn config(folder: &Path) -> EngineConfig {
    EngineConfig {
        max_num_seqs: 4,
        max_num_batched_tokens: 512,
        target_step_time: None,
        max_model_len: Some(512),
        kv_cache_bytes: Some(64 << 20),
        kv_disk: Some(KvDisk {
            path: folder.to_owned(),
            max_bytes: 1 << 30,
            patience: Duration::from_hours(1),
        }),
        deterministic: true,
        ..EngineConfig::default()
    }
}

/// Answers prompts one after the other, then ends the engine, which stores what it has. Returns what
/// was found in the cache or on disk besides.
fn answers(name: &str, config: &EngineConfig, prompts: &[&[u32]]) -> Vec<(Answer, usize)> {
    let loaded = Loaded::load(&open(name), config, Arc::new(|_, _| {}), None).unwrap();
    let Engine { handle, thread, .. } = loaded.start(config, metrics::install(name)).unwrap();
    let answers = prompts.iter().map(|tokens| one(&handle, request(tokens, 30, 0))).collect();
    drop(handle);
    thread.join().unwrap();
    answers
}

#[test]
fn what_the_last_engine_stored_has_the_bits_of_a_cold_start() {
    let (first, parted) = (prompt(300, VOCAB), sibling(200, 60));
    for (name, hits) in [
        ("qwen2", [288, 192]),
        ("gemma3", [288, 192]),
        ("deepseek_v3", [288, 192]),
        ("gpt_oss", [288, 192]),
        // They resume where there is a state: near the end of a prompt.
        ("lfm2", [288, 0]),
        ("qwen3_5", [288, 0]),
        ("nemotron_h", [288, 0]),
        ("mamba2", [288, 0]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let cold =
            start(name, &EngineConfig { prefix_cache: false, kv_disk: None, ..config.clone() });
        let expected = [&first, &parted].map(|tokens| one(&cold, request(tokens, 30, 0)).0);
        let stored = answers(name, &config, &[&first]);
        assert!(stored[0].0 == expected[0] && stored[0].1 == 0, "{name}");
        for (tokens, (expected, hit)) in [&first, &parted].iter().zip(expected.iter().zip(hits)) {
            let found = answers(name, &config, &[tokens]).remove(0);
            assert_eq!(found.1, hit, "{name}");
            assert!(found.0 == *expected, "{name}");
        }
    }
}

#[test]
fn nothing_is_taken_from_another_model_or_another_way_of_computing() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = prompt(300, VOCAB);
    let plain = config(folder.path());
    let cached = |name, config: &EngineConfig| answers(name, config, &[&tokens])[0].1;
    assert_eq!(cached("qwen2", &plain), 0);
    assert_eq!(cached("qwen2", &plain), 288);
    for other in [
        EngineConfig { kv_cache_dtype: KvCacheDtype::Fp8, ..plain.clone() },
        EngineConfig { weight_kind: Some(WeightKind::F16), ..plain.clone() },
    ] {
        assert_eq!(cached("qwen2", &other), 0);
        assert_eq!(cached("qwen2", &other), 288);
    }
    assert_eq!(cached("llama3", &plain), 0);
    assert_eq!(cached("qwen2", &plain), 288);
}
