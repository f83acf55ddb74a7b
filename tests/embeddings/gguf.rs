//! Encoders as GGUF files, converted by that format's own project, beside the folders they were made of.
//!
//! The files are made by `tests/fixtures/make_gguf.py`.

use std::path::{Path, PathBuf};

use sconce::config::{EngineConfig, Pooling};
use sconce::engine::EngineHandle;
use sconce::engine::request::EmbeddingRequest;
use sconce::engine::startup::Loaded;
use sconce::metrics;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;

use super::{assert_near, assert_within, raw, references, start_folder, text, vector};
use crate::parity::converted;

/// Fixtures, and whether their files say how they are pooled.
const FILES: [(&str, bool); 8] = [
    ("embeddings/bert_mean", true),
    ("embeddings/distilbert_max", false),
    ("embeddings/roberta_cls", true),
    ("encoders/embedding_gemma", false),
    ("encoders/euro_bert", false),
    ("encoders/jina_v3", false),
    ("encoders/modern_bert", false),
    ("encoders/nomic_bert", false),
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn open(name: &str) -> ModelSource {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, converted(&format!("../{name}")).unwrap()).unwrap();
    ModelSource::open(&ModelRef::GgufFile(path), &HubOptions::offline(folder.path())).unwrap()
}

fn start(source: &ModelSource, config: &EngineConfig) -> EngineHandle {
    let loaded = Loaded::load(source, config, std::sync::Arc::new(|_, _| {}), None).unwrap();
    loaded.start(config, metrics::install("gguf")).unwrap().handle
}

#[tokio::test]
async fn vectors_of_files_are_those_of_their_folders() {
    let texts: [Vec<u32>; 3] = [vec![5], (3..20).collect(), (2..20).rev().collect()];
    for (name, pools) in FILES {
        let source = open(name);
        assert_eq!(source.sentence_modules.is_some(), pools, "{name}");
        for pooling in [Pooling::Cls, Pooling::Last, Pooling::Mean] {
            let config = EngineConfig { pooling: Some(pooling), ..EngineConfig::default() };
            let (ours, theirs) = (start(&source, &config), start_folder(&folder(name), &config));
            for ids in &texts {
                let request = || EmbeddingRequest { wanted: raw(), ..text(ids) };
                let expected = vector(theirs.embed(request())).await;
                let ours = vector(ours.embed(request())).await;
                assert_within(&ours, &expected, 1e-6, &format!("{name} {pooling:?}"));
            }
        }
    }
}

#[tokio::test]
async fn a_file_pools_as_it_says() {
    for name in ["bert_mean", "roberta_cls"] {
        let engine = start(&open(&format!("embeddings/{name}")), &EngineConfig::default());
        for reference in references(name) {
            let ours = vector(engine.embed(text(&reference.ids))).await;
            assert_near(&ours, &reference.embedding, name);
        }
    }
}

#[tokio::test]
async fn a_file_that_judges_gives_the_scores_of_its_folder() {
    let name = "classifiers/roberta_rank";
    let config = EngineConfig::default();
    let (ours, theirs) = (start(&open(name), &config), start_folder(&folder(name), &config));
    assert!(ours.limits().outputs.is_of_classes());
    for ids in [vec![5, 6, 7], (3..20).collect::<Vec<u32>>()] {
        // Only the folder says that scores are to be left as they are.
        let request = || EmbeddingRequest { wanted: raw(), ..text(&ids) };
        let expected = vector(theirs.embed(request())).await;
        assert_near(&vector(ours.embed(request())).await, &expected, name);
    }
}
