//! Encoders that weigh the tokens of their vocabulary, beside sentence-transformers' sparse encoders.
//!
//! The fixtures are made by `tests/fixtures/make_embeddings.py`.

use futures::future::join_all;
use sconce::config::{EngineConfig, Pooling};
use sconce::engine::Outputs;
use serde::Deserialize;

use super::{assert_near, fixture, folders, load, start, start_folder, text, vector};

const MODELS: [&str; 4] = ["splade_bert", "splade_distilbert", "splade_roberta", "splade_mpnet"];

/// Of a text: the weights that are not 0, by token id.
#[derive(Deserialize)]
struct Reference {
    ids: Vec<u32>,
    weights: Vec<(usize, f32)>,
}

impl Reference {
    fn vector(&self, size: usize) -> Vec<f32> {
        let mut vector = vec![0.0; size];
        for (at, weight) in &self.weights {
            vector[*at] = *weight;
        }
        vector
    }
}

fn references(name: &str) -> Vec<Reference> {
    let text = std::fs::read_to_string(fixture(name).join("reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn weights_are_those_of_sentence_transformers() {
    for name in MODELS {
        let engine = start(name, &EngineConfig::default());
        let limits = engine.limits();
        assert_eq!((limits.outputs, limits.embedding_size), (Outputs::Lexical, limits.vocab_size));
        for reference in references(name) {
            let ours = vector(engine.embed(text(&reference.ids))).await;
            assert_near(&ours, &reference.vector(limits.vocab_size), name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_beside_others_has_the_bits_it_has_alone() {
    for name in ["splade_bert", "splade_mpnet"] {
        let one = EngineConfig { max_num_seqs: 1, ..EngineConfig::default() };
        let (alone, together) = (start(name, &one), start(name, &EngineConfig::default()));
        let texts: Vec<Vec<u32>> = references(name).into_iter().map(|one| one.ids).collect();
        let streams: Vec<_> = texts.iter().map(|ids| together.embed(text(ids))).collect();
        let vectors = join_all(streams.into_iter().map(vector)).await;
        for (ids, ours) in texts.iter().zip(vectors) {
            assert_eq!(ours, vector(alone.embed(text(ids))).await, "{name}, {} tokens", ids.len());
        }
    }
}

#[tokio::test]
async fn a_folder_without_modules_is_asked_for_them_by_name() {
    let plain = folders::copy("splade_bert");
    std::fs::remove_file(plain.path().join("modules.json")).unwrap();
    let config = EngineConfig { pooling: Some(Pooling::Splade), ..EngineConfig::default() };
    let engine = start_folder(plain.path(), &config);
    for reference in references("splade_bert") {
        let ours = vector(engine.embed(text(&reference.ids))).await;
        assert_near(&ours, &reference.vector(ours.len()), "splade");
    }
    let refused = load(&fixture("bert_mean"), &config).err().unwrap();
    assert!(refused.contains("cls.predictions"), "{refused}");
    let decoder = fixture("../parity/llama3");
    let refused = load(&decoder, &config).err().unwrap();
    assert!(refused.contains("--pooling") && refused.contains("masked words"), "{refused}");
}
