//! Classifiers beside transformers and sentence-transformers.
//!
//! The expected numbers are made by `tests/fixtures/make_classifiers.py`.

use std::path::{Path, PathBuf};

use sconce::config::{EngineConfig, KvCacheDtype, WeightKind};
use sconce::engine::Outputs;
use sconce::engine::request::EmbeddingRequest;
use serde::Deserialize;

use super::{assert_within, raw, start_folder, text, vector};

const RANKERS: [&str; 9] = [
    "bert_rank",
    "jina_rank",
    "roberta_rank",
    "electra_rank",
    "qwen3_rank",
    "modern_bert_rank",
    "gte_rank",
    "deberta_rank",
    "albert_rank",
];
const CLASSIFIERS: [&str; 3] = ["bert_emotions", "distilbert_topics", "euro_bert_topics"];

/// What the libraries make of a text or a pair of texts.
#[derive(Deserialize)]
struct Reference {
    ids: Vec<u32>,
    second: Option<usize>,
    logits: Vec<f32>,
    scores: Vec<f32>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/classifiers").join(name)
}

fn references(name: &str) -> Vec<Reference> {
    let text = std::fs::read_to_string(folder(name).join("reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn exact(name: &str) -> EngineConfig {
    let encoder = EngineConfig { weight_kind: Some(WeightKind::F32), ..EngineConfig::default() };
    if !name.starts_with("qwen3") {
        return encoder;
    }
    let kv_cache_dtype = KvCacheDtype::F32;
    EngineConfig { kv_cache_dtype, kv_cache_bytes: Some(1 << 22), ..encoder }
}

async fn compare(name: &str) {
    let engine = start_folder(&folder(name), &exact(name));
    assert!(!engine.limits().generates, "{name}");
    for reference in references(name) {
        let request = EmbeddingRequest { second_text: reference.second, ..text(&reference.ids) };
        let scores = vector(engine.embed(request.clone())).await;
        assert_within(&scores, &reference.scores, 1e-5, name);
        let logits = vector(engine.embed(EmbeddingRequest { wanted: raw(), ..request })).await;
        assert_within(&logits, &reference.logits, 1e-5, name);
    }
}

#[tokio::test]
async fn scores_of_pairs_are_those_of_cross_encoders() {
    for name in RANKERS {
        compare(name).await;
    }
}

#[tokio::test]
async fn classes_are_those_of_transformers() {
    for name in CLASSIFIERS {
        compare(name).await;
    }
    let engine = start_folder(&folder("bert_emotions"), &exact("bert_emotions"));
    assert_eq!((engine.limits().outputs, engine.limits().embedding_size), (Outputs::Classes, 3));
}

#[tokio::test]
async fn every_token_has_classes_where_the_model_says_so() {
    compare("bert_tokens").await;
    let engine = start_folder(&folder("bert_tokens"), &exact("bert_tokens"));
    assert_eq!(engine.limits().outputs, Outputs::TokenClasses);
}
