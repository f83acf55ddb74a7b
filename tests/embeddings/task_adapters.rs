//! Embedding models with an adapter for each task, beside PEFT: a decoder, and two that read whole texts, of which
//! one has its adapters beside its matrices.
//!
//! The expected numbers are made by `tests/fixtures/make_task_adapters.py`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::join_all;
use sconce::config::{EngineConfig, KvCacheDtype, Pooling, WeightKind};
use sconce::engine::EngineHandle;
use sconce::engine::adapter::Adapter;
use sconce::engine::request::EmbeddingRequest;
use sconce::engine::startup::Loaded;
use sconce::metrics;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;
use serde::Deserialize;

use super::folders::copy_folder;
use super::{assert_near, assert_within, cut, load, raw, rejection, start, text, vector};

const MODELS: [&str; 3] = ["small", "nano", "jina_v3"];

#[derive(Deserialize)]
struct References {
    /// Without any adapter, as the pooled state is.
    plain: Vec<Plain>,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Plain {
    ids: Vec<u32>,
    state: Vec<f32>,
}

#[derive(Deserialize)]
struct Run {
    task: String,
    ids: Vec<u32>,
    embedding: Vec<f32>,
}

/// A model, and its adapters in the order of its tasks.
struct Started {
    engine: EngineHandle,
    adapters: Vec<Adapter>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/task_adapters").join(name)
}

fn references(name: &str) -> References {
    let text = std::fs::read_to_string(folder(name).join("reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn exact(name: &str) -> EngineConfig {
    let config = EngineConfig { weight_kind: Some(WeightKind::F32), ..EngineConfig::default() };
    if name != "small" {
        return config;
    }
    let kv_cache_dtype = KvCacheDtype::F32;
    EngineConfig { kv_cache_dtype, kv_cache_bytes: Some(1 << 22), ..config }
}

fn started(name: &str, config: &EngineConfig) -> Started {
    let options = HubOptions::offline(&folder(name));
    let source = ModelSource::open(&ModelRef::Folder(folder(name)), &options).unwrap();
    let loaded = Loaded::load(&source, config, Arc::new(|_, _| {}), None).unwrap();
    let reader = loaded.adapter_loader(config, options);
    let own = source.task_adapters.iter().map(|own| reader.load_own(own).unwrap());
    let adapters = own.collect();
    let engine = loaded.start(config, metrics::install("tasks")).unwrap().handle;
    Started { engine, adapters }
}

impl Started {
    fn request(&self, run: &Run) -> EmbeddingRequest {
        let adapter = self.adapters.iter().find(|own| own.name() == run.task).cloned();
        assert!(adapter.is_some(), "{}", run.task);
        EmbeddingRequest { adapter, ..text(&run.ids) }
    }
}

#[tokio::test]
async fn every_task_has_the_vectors_of_its_adapter() {
    for name in MODELS {
        // The bound on ranks is for adapters that others bring.
        let model = started(name, &EngineConfig { max_lora_rank: 1, ..exact(name) });
        let limits = model.engine.limits();
        let pooling = if name == "jina_v3" { Pooling::Mean } else { Pooling::Last };
        assert_eq!((limits.pooling, limits.normalizes), (pooling, true));
        assert!(!limits.generates, "{name}");
        let References { plain, runs } = references(name);
        for Plain { ids, state } in plain {
            let request = EmbeddingRequest { wanted: raw(), ..text(&ids) };
            assert_near(&vector(model.engine.embed(request)).await, &state, name);
        }
        for run in runs {
            let ours = vector(model.engine.embed(model.request(&run))).await;
            assert_near(&ours, &run.embedding, &format!("{name}, {}", run.task));
            let request = EmbeddingRequest { wanted: cut(8), ..model.request(&run) };
            let length = run.embedding[..8].iter().map(|x| x * x).sum::<f32>().sqrt();
            let shorter: Vec<f32> = run.embedding[..8].iter().map(|x| x / length).collect();
            assert_near(&vector(model.engine.embed(request)).await, &shorter, "8 dimensions");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_several_tasks_share_steps_and_keep_their_bits() {
    for name in MODELS {
        let one = EngineConfig { max_num_seqs: 1, ..exact(name) };
        let (alone, together) = (started(name, &one), started(name, &exact(name)));
        let runs = references(name).runs;
        let streams: Vec<_> =
            runs.iter().map(|run| together.engine.embed(together.request(run))).collect();
        let vectors = join_all(streams.into_iter().map(vector)).await;
        for (run, ours) in runs.iter().zip(vectors) {
            let expected = vector(alone.engine.embed(alone.request(run))).await;
            assert_eq!(ours, expected, "{name}, {}, {} tokens", run.task, run.ids.len());
        }
    }
}

#[tokio::test]
async fn an_encoder_without_such_layers_takes_no_adapters() {
    let model = started("nano", &exact("nano"));
    let bert = start("bert_mean", &EngineConfig::default());
    let request = EmbeddingRequest { adapter: Some(model.adapters[0].clone()), ..text(&[5]) };
    let message = rejection(bert.embed(request)).await;
    assert!(message.contains("takes no adapters, such as \"retrieval\""), "{message}");
}

#[test]
fn a_task_without_its_adapter_is_named() {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(&folder("nano"), copy.path());
    std::fs::remove_dir_all(copy.path().join("adapters/clustering")).unwrap();
    let message = load(copy.path(), &EngineConfig::default()).err().unwrap();
    assert!(message.contains("adapters/clustering/adapter_config.json is missing"), "{message}");
}

/// An adapter that is no task's, of an encoder with stacked projections.
#[tokio::test]
async fn encoders_that_are_computed_as_decoders_take_adapters() {
    #[derive(Deserialize)]
    struct Mean {
        ids: Vec<u32>,
        mean: Vec<f32>,
    }
    let base = folder("modern_bert").parent().unwrap().with_file_name("encoders/modern_bert");
    let options = HubOptions::offline(&base);
    let source = ModelSource::open(&ModelRef::Folder(base), &options).unwrap();
    let config = EngineConfig { pooling: Some(Pooling::Mean), ..EngineConfig::default() };
    let loaded = Loaded::load(&source, &config, Arc::new(|_, _| {}), None).unwrap();
    let reader = loaded.adapter_loader(&config, options);
    let adapter = reader.load("x", folder("modern_bert").to_str().unwrap()).unwrap();
    let engine = loaded.start(&config, metrics::install("adapted")).unwrap().handle;
    let text_of = std::fs::read_to_string(folder("modern_bert").join("reference.json")).unwrap();
    for Mean { ids, mean } in serde_json::from_str::<Vec<Mean>>(&text_of).unwrap() {
        let plain = EmbeddingRequest { wanted: raw(), ..text(&ids) };
        let request = EmbeddingRequest { adapter: Some(adapter.clone()), ..plain.clone() };
        let ours = vector(engine.embed(request)).await;
        assert_within(&ours, &mean, 2e-5, "with the adapter");
        assert_ne!(ours, vector(engine.embed(plain)).await);
    }
}
