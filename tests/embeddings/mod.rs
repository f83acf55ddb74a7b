//! Encoders from sentence-transformers folders, against what that library computes with them.
//!
//! The fixtures are made by `tests/fixtures/make_embeddings.py`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sconce::config::{EngineConfig, Pooling, WeightKind};
use sconce::engine::EngineHandle;
use sconce::engine::output::{EngineError, EngineOutput, OutputStream};
use sconce::engine::request::{EmbeddingRequest, EngineRequest, RequestId, Wanted};
use sconce::engine::startup::Loaded;
use sconce::metrics;
use sconce::sampling::params::SamplingParams;
use sconce::scheduler::stop::StopConditions;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;
use serde::Deserialize;

mod classifiers;
mod company;
mod decoders;
mod encoders;
mod folders;
mod gguf;
mod jina_bert;
mod lexical;
mod refusals;
mod task_adapters;
mod token_heads;
mod unseen;

const MODELS: [&str; 11] = [
    "bert_mean",
    "distilbert_max",
    "roberta_cls",
    "xlm_roberta_dense",
    "mpnet_mean",
    "albert_mean",
    "electra_small",
    "rembert_mean",
    "ernie_cls",
    "t5_dense",
    "t5_gated",
];

/// What sentence-transformers makes of a text.
#[derive(Deserialize)]
struct Reference {
    ids: Vec<u32>,
    embedding: Vec<f32>,
    pooled: std::collections::HashMap<String, Vec<f32>>,
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/embeddings").join(name)
}

fn references(name: &str) -> Vec<Reference> {
    let text = std::fs::read_to_string(fixture(name).join("reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn load(folder: &Path, config: &EngineConfig) -> Result<Loaded, String> {
    let model = ModelRef::Folder(folder.to_owned());
    let source = ModelSource::open(&model, &HubOptions::offline(folder));
    let source = source.map_err(|error| error.to_string())?;
    Loaded::load(&source, config, Arc::new(|_, _| {}), None).map_err(|error| error.to_string())
}

fn start(name: &str, config: &EngineConfig) -> EngineHandle {
    start_folder(&fixture(name), config)
}

fn start_folder(folder: &Path, config: &EngineConfig) -> EngineHandle {
    let loaded = load(folder, config).unwrap();
    loaded.start(config, metrics::install("embeddings")).unwrap().handle
}

fn text(ids: &[u32]) -> EmbeddingRequest {
    EmbeddingRequest {
        id: RequestId::next(),
        token_ids: ids.to_vec(),
        second_text: None,
        unseen: 0,
        wanted: Wanted::default(),
        priority: 0,
        share: 0,
        cache_salt: None,
        adapter: None,
    }
}

fn raw() -> Wanted {
    Wanted { activation: Some(false), ..Wanted::default() }
}

fn cut(dimensions: usize) -> Wanted {
    Wanted { dimensions: Some(dimensions), ..Wanted::default() }
}

async fn vector(mut stream: OutputStream) -> Vec<f32> {
    match stream.next().await {
        Some(EngineOutput::Started { .. }) => {}
        other => panic!("{other:?}"),
    }
    match stream.next().await {
        Some(EngineOutput::Embedded { embedding, .. }) => embedding,
        other => panic!("{other:?}"),
    }
}

fn assert_near(ours: &[f32], theirs: &[f32], what: &str) {
    assert_within(ours, theirs, 1e-5, what);
}

fn assert_within(ours: &[f32], theirs: &[f32], bound: f32, what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() < bound, "{what}: {a} and {b}");
    }
}

async fn rejection(mut stream: OutputStream) -> String {
    match stream.next().await {
        Some(EngineOutput::Failed(EngineError::Rejected(message))) => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn vectors_are_those_of_sentence_transformers() {
    for name in MODELS {
        let engine = start(name, &EngineConfig::default());
        for reference in references(name) {
            let ours = vector(engine.embed(text(&reference.ids))).await;
            assert_near(&ours, &reference.embedding, name);
        }
    }
}

#[tokio::test]
async fn every_way_of_pooling_is_that_of_sentence_transformers() {
    let names = [
        ("cls", Pooling::Cls),
        ("max", Pooling::Max),
        ("mean", Pooling::Mean),
        ("mean_sqrt_len_tokens", Pooling::MeanSqrtLen),
        ("weightedmean", Pooling::WeightedMean),
        ("lasttoken", Pooling::Last),
    ];
    for (theirs, pooling) in names {
        let config = EngineConfig { pooling: Some(pooling), ..EngineConfig::default() };
        let engine = start("bert_mean", &config);
        for reference in references("bert_mean") {
            let request = EmbeddingRequest { wanted: raw(), ..text(&reference.ids) };
            let ours = vector(engine.embed(request)).await;
            assert_near(&ours, &reference.pooled[theirs], theirs);
        }
    }
}

#[tokio::test]
async fn a_folder_without_modules_is_pooled_as_the_library_does_it() {
    let plain = folders::copy("bert_mean");
    std::fs::remove_file(plain.path().join("modules.json")).unwrap();
    let engine = start_folder(plain.path(), &EngineConfig::default());
    // What the tokenizer says is left: 24 tokens, of 40 positions.
    assert_eq!(engine.limits().max_model_len, 24);
    for reference in references("bert_mean") {
        let ours = vector(engine.embed(text(&reference.ids))).await;
        assert_near(&ours, &reference.pooled["mean"], "mean");
    }
}

#[tokio::test]
async fn checkpoints_with_older_names_and_heads_are_read() {
    let theirs = references("bert_mean");
    for rename in [folders::with_old_norm_names, folders::below_a_prefix] {
        let folder = folders::renamed("bert_mean", rename);
        let engine = start_folder(folder.path(), &EngineConfig::default());
        for reference in &theirs {
            let ours = vector(engine.embed(text(&reference.ids))).await;
            assert_near(&ours, &reference.embedding, "renamed");
        }
    }
}

#[tokio::test]
async fn rounded_weights_change_little() {
    let folder = folders::wide(96, 640);
    let ids: Vec<u32> = (5..35).collect();
    let exact = start_folder(folder.path(), &EngineConfig::default());
    let expected = vector(exact.embed(text(&ids))).await;
    for (kind, bound) in [(WeightKind::Bf16, 0.03), (WeightKind::Q8_0, 0.05)] {
        let config = EngineConfig { weight_kind: Some(kind), ..EngineConfig::default() };
        let rounded = start_folder(folder.path(), &config);
        let ours = vector(rounded.embed(text(&ids))).await;
        assert_ne!(ours, expected);
        assert_within(&ours, &expected, bound, &format!("{kind:?}"));
    }
}

#[tokio::test]
async fn vectors_are_cut_where_the_author_cuts_them() {
    let file = "config_sentence_transformers.json";
    let folder = folders::changed("bert_mean", file, |json| json["truncate_dim"] = 9.into());
    let engine = start_folder(folder.path(), &EngineConfig::default());
    assert_eq!(engine.limits().embedding_size, 9);
    for reference in references("bert_mean") {
        let ours = vector(engine.embed(text(&reference.ids))).await;
        assert_near(&ours, &reference.embedding[..9], "cut");
    }
}

#[tokio::test]
async fn an_encoder_embeds_and_does_nothing_else() {
    let engine = start("xlm_roberta_dense", &EngineConfig::default());
    let limits = engine.limits();
    assert_eq!((limits.generates, limits.embedding_size), (false, 12));
    // 40 positions, of which padding and what stands before it take two.
    assert_eq!(limits.max_model_len, 38);
    let stop = StopConditions {
        max_tokens: 1,
        min_tokens: 0,
        eos_token_ids: Arc::from([]),
        stop_token_ids: Vec::new(),
        ignore_eos: false,
    };
    let refused = engine.submit(EngineRequest {
        id: RequestId::next(),
        prompt_token_ids: vec![1],
        sampling: SamplingParams::default(),
        stop,
        prediction: None,
        max_drafts: None,
        prompt_logprobs: None,
        priority: 0,
        share: 0,
        cache_salt: None,
        adapter: None,
        pictures: Vec::new(),
        sounds: Vec::new(),
    });
    let cases = [
        (text(&[0; 39]), "39 tokens, the most is 38"),
        (text(&[260]), "token id 260 is outside the vocabulary of 260"),
        (text(&[]), "no tokens"),
        (EmbeddingRequest { wanted: cut(13), ..text(&[5]) }, "it must be 1 to 12"),
    ];
    assert!(rejection(refused).await.contains("only makes vectors"));
    for (request, expected) in cases {
        let message = rejection(engine.embed(request)).await;
        assert!(message.contains(expected), "{message}");
    }
    let cut = EmbeddingRequest { wanted: cut(5), ..text(&[5, 6]) };
    let vector = vector(engine.embed(cut)).await;
    let squares: f32 = vector.iter().map(|x| x * x).sum();
    assert!(vector.len() == 5 && (squares - 1.0).abs() < 1e-6, "{vector:?}");
}

#[tokio::test]
async fn a_text_that_nobody_waits_for_is_not_embedded() {
    let config = EngineConfig { max_num_seqs: 1, ..EngineConfig::default() };
    let folder = folders::wide(384, 600);
    let metrics = metrics::install("abandoned");
    let loaded = load(folder.path(), &config).unwrap();
    let engine = loaded.start(&config, metrics.clone()).unwrap().handle;
    let streams: Vec<_> = (0..500).map(|_| engine.embed(text(&[5; 20]))).collect();
    drop(streams);
    assert_eq!(vector(engine.embed(text(&[5; 3]))).await.len(), 384);
    // Each would have been a step, and some may have been before they were dropped.
    let rendered = metrics.render();
    let count = rendered.lines().find(|line| line.starts_with("vllm:iteration_tokens_total_count"));
    let count: u32 = count.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!((1..400).contains(&count), "{count} steps");
}
