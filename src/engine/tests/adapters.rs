//! Sequences with adapters, which share steps and never blocks.

use std::collections::HashMap;

use super::*;
use crate::engine::adapter::Adapter;
use crate::engine::request::{BeamRequest, EmbeddingRequest, Wanted};
use crate::runner;

/// An adapter that the model tells from others by its size.
fn adapter(name: &str, size: usize) -> Adapter {
    let digest = [size as u8; 16];
    Adapter::new(name, digest, runner::Adapter::new(HashMap::new(), size))
}

/// The usual requests, every third with none, the others with one of two.
fn mixed() -> Vec<EngineRequest> {
    let adapters = [None, Some(adapter("a", 1)), Some(adapter("b", 2))];
    let adapters = adapters.iter().cycle().cloned();
    let requests = requests().into_iter().zip(adapters);
    requests.map(|(request, adapter)| EngineRequest { adapter, ..request }).collect()
}

/// Prompt tokens that were found in the cache.
fn cached(mut stream: OutputStream) -> usize {
    block_on(async {
        let started = stream.next().await;
        while stream.next().await.is_some() {}
        match started {
            Some(EngineOutput::Started { cached_tokens, .. }) => cached_tokens,
            other => panic!("{other:?}"),
        }
    })
}

#[test]
fn answers_with_adapters_do_not_depend_on_batch_chunks_cache_or_preemption() {
    let lone = EngineConfig { prefix_cache: false, ..config(64) };
    let running = start(&lone, Duration::ZERO);
    let one = |request| answers(&running, vec![request]).remove(0);
    let expected: Vec<Answer> = mixed().into_iter().map(one).collect();
    let without: Vec<Answer> = requests().into_iter().map(one).collect();
    for (index, (with, without)) in expected.iter().zip(&without).enumerate() {
        assert_eq!(with == without, index % 3 == 0, "request {index}");
    }
    let cases = [
        ("in one batch", config(64)),
        ("in small chunks", EngineConfig { max_num_batched_tokens: 9, ..config(64) }),
        ("with preemption", config(12)),
        ("two at a time", EngineConfig { max_num_seqs: 2, ..config(32) }),
    ];
    for (case, config) in cases {
        let running = start(&config, Duration::ZERO);
        for round in ["cold", "with new loads"] {
            assert_eq!(answers(&running, mixed()), expected, "{case}, {round}");
        }
        running.assert_idle();
    }
}

#[test]
fn blocks_are_shared_under_adapters_of_equal_content_only() {
    let running = start(&config(64), Duration::ZERO);
    // Four blocks, and too few tokens behind them to be worth a copy.
    let tokens = prompt(3, 68);
    let (a, b, again) = (adapter("a", 1), adapter("b", 2), adapter("a", 1));
    let asked = |adapter: Option<&Adapter>, salt: Option<&str>| EngineRequest {
        adapter: adapter.cloned(),
        cache_salt: salt.map(str::to_owned),
        ..request(tokens.clone(), 2, 0)
    };
    for (adapter, salt, expected) in [
        (None, None, 0),
        (Some(&a), None, 0),
        (Some(&b), None, 0),
        (Some(&again), None, 64),
        (Some(&a), Some("tenant"), 0),
        (None, None, 64),
        (Some(&a), None, 64),
        (Some(&again), None, 64),
        (Some(&b), None, 64),
        (Some(&a), Some("tenant"), 64),
    ] {
        let found = cached(running.handle.submit(asked(adapter, salt)));
        assert_eq!(found, expected, "{adapter:?} {salt:?}");
    }
    let embedded = |adapter: &Adapter| EmbeddingRequest {
        id: RequestId::next(),
        token_ids: tokens.clone(),
        second_text: None,
        unseen: 0,
        wanted: Wanted::default(),
        priority: 0,
        share: 0,
        cache_salt: None,
        adapter: Some(adapter.clone()),
    };
    assert_eq!(cached(running.handle.embed(embedded(&a))), 64);
    assert_eq!(cached(running.handle.embed(embedded(&adapter("a", 3)))), 0);
}

#[test]
fn every_beam_of_a_search_has_the_adapter() {
    let running = start(&config(64), Duration::ZERO);
    for width in [1, 4] {
        let BeamRequest { request, beams } =
            beams::searched(prompt(2, 33), 40, beams::params(width));
        let plain = BeamRequest { request: request.clone(), beams };
        let request = EngineRequest { adapter: Some(adapter("a", 3)), ..request };
        let search = BeamRequest { request, beams };
        let expected = beams::expected(&running, &search);
        assert_ne!(expected, beams::expected(&running, &plain));
        assert_eq!(beams::found(running.handle.search(search)), expected);
    }
}

#[test]
fn an_adapter_in_use_is_told_and_let_go_with_its_last_request() {
    let running = start(&EngineConfig { max_num_seqs: 1, ..config(16) }, Duration::from_millis(5));
    running.metrics.start_lora(4);
    let (a, b) = (adapter("a", 1), adapter("b", 2));
    let held = std::sync::Arc::downgrade(a.weights());
    let asked =
        |adapter: Adapter| EngineRequest { adapter: Some(adapter), ..request(prompt(1, 5), 40, 0) };
    let [first, second] = [a, b].map(|adapter| running.handle.submit(asked(adapter)));
    let shows = |labels: &str| {
        let labels = format!("vllm:lora_requests_info{{max_lora=\"4\",{labels},model_name=");
        (0..400).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            running.metrics.render().contains(&labels)
        })
    };
    assert!(shows("running_lora_adapters=\"a\",waiting_lora_adapters=\"b\""));
    // Whoever served it may have forgotten it: the request has it to the end.
    assert!(held.upgrade().is_some());
    for stream in [first, second] {
        let (answer, end) = block_on(collect(stream));
        assert!(answer.0.len() == 40 && matches!(end, Some(EngineOutput::Finished { .. })));
    }
    assert!(shows("running_lora_adapters=\"\",waiting_lora_adapters=\"\""));
    assert!(held.upgrade().is_none());
}
