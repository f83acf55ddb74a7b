//! Texts to embed beside texts to continue.

use super::*;
use crate::engine::request::{EmbeddingRequest, Wanted};
use crate::pooling::Pooler;

fn text(tokens: Vec<u32>) -> EmbeddingRequest {
    EmbeddingRequest {
        id: RequestId::next(),
        token_ids: tokens,
        second_text: None,
        unseen: 0,
        wanted: Wanted::default(),
        priority: 0,
        share: 0,
        cache_salt: None,
        adapter: None,
    }
}

fn cut(dimensions: usize) -> Wanted {
    Wanted { dimensions: Some(dimensions), ..Wanted::default() }
}

async fn vector(mut stream: OutputStream) -> (Vec<u32>, usize) {
    loop {
        match stream.next().await {
            Some(EngineOutput::Started { .. }) => {}
            Some(EngineOutput::Embedded { embedding, stats }) => {
                assert_eq!(stream.next().await, None);
                let bits = embedding.into_iter().map(f32::to_bits).collect();
                return (bits, stats.cached_tokens);
            }
            other => panic!("{other:?}"),
        }
    }
}

fn with(config: &EngineConfig, pooling: Pooling) -> Running {
    start(&EngineConfig { pooling: Some(pooling), ..config.clone() }, Duration::ZERO)
}

/// Prompts that share a beginning of two blocks, and some that share nothing.
fn texts() -> Vec<Vec<u32>> {
    let shared = prompt(99, 70);
    let lengths = [1, 7, 33, 130, 64, 31, 100, 2];
    let ends = (0..).zip(lengths).map(|(seed, length)| prompt(seed, length));
    ends.enumerate()
        .map(|(i, end)| if i % 2 == 0 { [&shared[..], &end].concat() } else { end })
        .collect()
}

#[test]
fn embeddings_do_not_depend_on_company_chunks_cache_or_preemption() {
    let answers_alone = alone();
    for pooling in Pooling::ALL {
        let lone = EngineConfig { prefix_cache: false, ..config(64) };
        let each = |tokens: Vec<u32>| {
            let running = with(&lone, pooling);
            block_on(vector(running.handle.embed(text(tokens)))).0
        };
        let expected: Vec<Vec<u32>> = texts().into_iter().map(each).collect();
        let cases = [
            ("in one batch", config(64)),
            ("in small chunks", EngineConfig { max_num_batched_tokens: 9, ..config(64) }),
            ("with preemption", config(12)),
            ("two at a time", EngineConfig { max_num_seqs: 2, ..config(32) }),
        ];
        for (case, config) in cases {
            let running = with(&config, pooling);
            for round in ["cold", "warm"] {
                // Streams that decode all the while.
                let streams: Vec<_> =
                    requests().into_iter().map(|r| running.handle.submit(r)).collect();
                let embedded: Vec<_> =
                    texts().into_iter().map(|t| running.handle.embed(text(t))).collect();
                block_on(async {
                    for (stream, expected) in embedded.into_iter().zip(&expected) {
                        assert_eq!(&vector(stream).await.0, expected, "{pooling:?} {case} {round}");
                    }
                    for (stream, expected) in streams.into_iter().zip(&answers_alone) {
                        assert_eq!(&collect(stream).await.0, expected, "{pooling:?} {case}");
                    }
                });
            }
            running.assert_idle();
        }
    }
}

#[test]
fn each_hidden_state_is_pooled_once() {
    let tokens = prompt(3, 100);
    let states: Vec<Vec<f32>> = {
        // The state at a position is the last state of the text that ends there.
        let running = with(&config(64), Pooling::Last);
        let prefixes = (1..=tokens.len()).map(|end| text(tokens[..end].to_vec()));
        let streams: Vec<_> = prefixes.map(|prefix| running.handle.embed(prefix)).collect();
        block_on(async {
            let mut states = Vec::new();
            for stream in streams {
                states.push(vector(stream).await.0.into_iter().map(f32::from_bits).collect());
            }
            states
        })
    };
    for pooling in Pooling::ALL {
        let mut pooler = Pooler::new(Some(pooling));
        for state in &states {
            pooler.add(state);
        }
        let expected: Vec<u32> = pooler.finish().concat().into_iter().map(f32::to_bits).collect();
        let running = with(&EngineConfig { max_num_batched_tokens: 33, ..config(64) }, pooling);
        let embedded = block_on(vector(running.handle.embed(text(tokens.clone()))));
        assert_eq!(embedded.0, expected, "{pooling:?}");
    }
}

#[test]
fn cached_tokens_are_skipped_only_where_they_are_not_pooled() {
    for (pooling, cached) in [(Pooling::Last, 96), (Pooling::Mean, 0), (Pooling::Cls, 0)] {
        let running = with(&config(64), pooling);
        let found = |_| block_on(vector(running.handle.embed(text(prompt(1, 100))))).1;
        assert_eq!([0, 1].map(found), [0, cached], "{pooling:?}");
    }
}

#[test]
fn vectors_are_cut_and_scaled_as_asked() {
    let running = start(&config(8), Duration::ZERO);
    let asked = EmbeddingRequest {
        wanted: Wanted { activation: Some(true), ..cut(2) },
        ..text(prompt(1, 5))
    };
    let bits = block_on(vector(running.handle.embed(asked))).0;
    let squares = bits.iter().map(|bits| f32::from_bits(*bits).powi(2)).sum::<f32>();
    assert!(bits.len() == 2 && (squares - 1.0).abs() < 1e-6, "{bits:?}");
}

#[test]
fn texts_that_cannot_be_embedded_are_refused_and_the_longest_is_not() {
    let running = start(&config(4), Duration::ZERO);
    let cases = [
        (text(Vec::new()), "no tokens"),
        (text(vec![1; 129]), "129 tokens, the most is 128"),
        (text(vec![98]), "token id 98 is outside the vocabulary of 98"),
        (EmbeddingRequest { wanted: cut(4), ..text(vec![1]) }, "dimensions is 4"),
        (EmbeddingRequest { wanted: cut(0), ..text(vec![1]) }, "dimensions is 0"),
    ];
    for (request, expected) in cases {
        let (_, end) = block_on(collect(running.handle.embed(request)));
        let Some(EngineOutput::Failed(EngineError::Rejected(message))) = end else {
            panic!("expected a refusal, got {end:?}");
        };
        assert!(message.contains(expected), "{message}");
    }
    assert_eq!(block_on(vector(running.handle.embed(text(vec![1; 128])))).0.len(), 3);
    let (_, end) = block_on(collect(running.handle.embed(text(vec![1, FAILS]))));
    assert!(matches!(end, Some(EngineOutput::Failed(EngineError::StepFailed(_)))), "{end:?}");
}

#[test]
fn a_dropped_text_frees_its_blocks() {
    let running = start(
        &EngineConfig { max_num_seqs: 2, max_num_batched_tokens: 8, ..config(16) },
        Duration::from_millis(2),
    );
    let mut streams: Vec<_> =
        (0..6).map(|seed| running.handle.embed(text(prompt(seed, 100)))).collect();
    block_on(async {
        assert!(matches!(streams[0].next().await, Some(EngineOutput::Started { .. })));
    });
    streams.clear();
    running.assert_idle();
}
