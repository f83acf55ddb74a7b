//! Encoders of newer design, and decoders that read whole texts, beside transformers.
//!
//! The expected numbers are made by `tests/fixtures/make_encoders.py`.

use std::path::{Path, PathBuf};

use futures::future::join_all;
use sconce::config::{EngineConfig, Pooling};
use sconce::engine::request::EmbeddingRequest;
use serde::Deserialize;

use super::{assert_within, raw, start_folder, text, vector};

const MODELS: [&str; 12] = [
    "modern_bert",
    "nomic_bert",
    "gte",
    "jina_v3",
    "euro_bert",
    "embedding_gemma",
    "deberta",
    "llama_bidirectional",
    "megatron_bert",
    "roformer",
    "xlm_roberta_xl",
    "nomic_moe",
];

/// Of a text: the last hidden state of its first and last token, and the mean of all.
#[derive(Deserialize)]
struct Reference {
    ids: Vec<u32>,
    cls: Vec<f32>,
    last: Vec<f32>,
    mean: Vec<f32>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/encoders").join(name)
}

fn references(name: &str) -> Vec<Reference> {
    let text = std::fs::read_to_string(folder(name).join("reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn hidden_states_are_those_of_transformers() {
    for name in MODELS {
        for pooling in [Pooling::Cls, Pooling::Last, Pooling::Mean] {
            let config = EngineConfig { pooling: Some(pooling), ..EngineConfig::default() };
            let engine = start_folder(&folder(name), &config);
            assert!(!engine.limits().generates, "{name}");
            for reference in references(name) {
                let request = EmbeddingRequest { wanted: raw(), ..text(&reference.ids) };
                let ours = vector(engine.embed(request)).await;
                let theirs = match pooling {
                    Pooling::Cls => &reference.cls,
                    Pooling::Last => &reference.last,
                    _ => &reference.mean,
                };
                assert_within(&ours, theirs, 2e-5, &format!("{name} {pooling:?}"));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_beside_others_has_the_bits_it_has_alone() {
    for name in MODELS {
        let one = EngineConfig { max_num_seqs: 1, ..EngineConfig::default() };
        let alone = start_folder(&folder(name), &one);
        let config = EngineConfig { max_num_batched_tokens: 100_000, ..EngineConfig::default() };
        let together = start_folder(&folder(name), &config);
        let texts: Vec<Vec<u32>> = references(name).into_iter().map(|one| one.ids).collect();
        let streams: Vec<_> = texts.iter().map(|ids| together.embed(text(ids))).collect();
        let vectors = join_all(streams.into_iter().map(vector)).await;
        for (ids, ours) in texts.iter().zip(vectors) {
            let expected = vector(alone.embed(text(ids))).await;
            assert_eq!(ours, expected, "{name}, {} tokens", ids.len());
        }
    }
}
