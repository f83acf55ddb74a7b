//! Texts whose last tokens no token sees: what fills up the queries of late interaction.

use std::path::{Path, PathBuf};

use sconce::config::EngineConfig;
use sconce::engine::Outputs;
use sconce::engine::request::{EmbeddingRequest, Wanted};

use super::{assert_near, rejection, start_folder, text, vector};

/// With scores as they are, with biases by relative position, with windows, and with biases that all
/// layers share.
const MODELS: [&str; 5] = [
    "embeddings/bert_mean",
    "embeddings/mpnet_mean",
    "encoders/modern_bert",
    "encoders/deberta",
    "embeddings/t5_dense",
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn states(ids: &[u32], unseen: usize) -> EmbeddingRequest {
    let wanted = Wanted { outputs: Some(Outputs::HiddenStates), ..Wanted::default() };
    EmbeddingRequest { wanted, unseen, ..text(ids) }
}

#[tokio::test]
async fn they_see_the_others_and_change_nothing_for_them() {
    for name in MODELS {
        let engine = start_folder(&folder(name), &EngineConfig::default());
        let size = engine.limits().hidden_size;
        let ids: Vec<u32> = (5..12).chain([4; 13]).collect();
        let alone = vector(engine.embed(states(&ids[..7], 0))).await;
        let filled = vector(engine.embed(states(&ids, 13))).await;
        assert_near(&filled[..7 * size], &alone, name);
        let seen = vector(engine.embed(states(&ids, 0))).await;
        assert!(seen[..size].iter().zip(&alone).any(|(a, b)| (a - b).abs() > 1e-4), "{name}");
        // One of them doesn't see the others either.
        let one = vector(engine.embed(states(&ids[..8], 1))).await;
        assert_near(&filled[7 * size..8 * size], &one[7 * size..], name);
        assert!(filled.iter().all(|x| x.is_finite()), "{name}");
    }
}

#[tokio::test]
async fn a_text_has_tokens_that_are_seen() {
    let engine = start_folder(&folder("embeddings/bert_mean"), &EngineConfig::default());
    let message = rejection(engine.embed(states(&[5, 6], 2))).await;
    assert!(message.contains("2 tokens are not seen, must be fewer than all 2"), "{message}");
    let config = EngineConfig { kv_cache_bytes: Some(1 << 22), ..EngineConfig::default() };
    let decoder = start_folder(&crate::parity::folder("qwen3"), &config);
    let request = EmbeddingRequest { unseen: 1, ..text(&[5, 6]) };
    let message = rejection(decoder.embed(request)).await;
    assert!(message.contains("which needs an encoder"), "{message}");
}
