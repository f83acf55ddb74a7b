//! Decoders from sentence-transformers folders: their modules say what becomes of hidden states.
//!
//! The expected numbers are those of `tests/parity/hidden.rs`.

use std::path::Path;

use candle_core::{Device, safetensors};
use sconce::config::{EngineConfig, KvCacheDtype, WeightKind};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{assert_within, start_folder, text, vector};
use crate::parity;

#[derive(Deserialize)]
struct Run {
    prompt: u32,
    last: Vec<f32>,
    mean: Vec<f32>,
}

/// A decoder's folder with modules behind the network, as embedding models of that kind have it.
fn with_modules(pooling: &str, normalize: bool, text_config: &Value) -> TempDir {
    let from = parity::folder("qwen3");
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(from.join(file), copy.path().join(file)).unwrap();
    }
    let module = |kind: &str, path: &str| json!({"type": format!("sentence_transformers.models.{kind}"), "path": path});
    let mut modules = vec![module("Transformer", ""), module("Pooling", "1_Pooling")];
    if normalize {
        modules.push(module("Normalize", "2_Normalize"));
    }
    let write = |file: &str, content: &Value| {
        std::fs::write(copy.path().join(file), content.to_string()).unwrap();
    };
    std::fs::create_dir(copy.path().join("1_Pooling")).unwrap();
    write("1_Pooling/config.json", &json!({(format!("pooling_mode_{pooling}")): true}));
    write("modules.json", &Value::Array(modules));
    write("sentence_bert_config.json", text_config);
    copy
}

fn exact() -> EngineConfig {
    EngineConfig {
        weight_kind: Some(WeightKind::F32),
        kv_cache_dtype: KvCacheDtype::F32,
        kv_cache_bytes: Some(1 << 22),
        ..EngineConfig::default()
    }
}

fn runs() -> Vec<Run> {
    runs_of("qwen3")
}

fn runs_of(name: &str) -> Vec<Run> {
    let text = std::fs::read_to_string(parity::folder(name).join("hidden.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

async fn embed(folder: &Path, run: &Run) -> Vec<f32> {
    let engine = start_folder(folder, &exact());
    let vocab = u32::try_from(engine.limits().vocab_size).unwrap();
    vector(engine.embed(text(&parity::prompt(run.prompt, vocab)))).await
}

fn scaled(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    vector.iter().map(|x| x / length).collect()
}

#[tokio::test]
async fn modules_say_how_a_decoder_embeds() {
    let none = json!({});
    let last = with_modules("lasttoken", true, &none);
    let mean = with_modules("mean_tokens", false, &none);
    for run in runs() {
        let ours = embed(last.path(), &run).await;
        assert_within(&ours, &scaled(&run.last), 2e-4, "last");
        let ours = embed(mean.path(), &run).await;
        assert_within(&ours, &run.mean, 2e-4, "mean");
    }
}

#[tokio::test]
async fn texts_are_kept_short_where_prompts_may_be_long() {
    let folder = with_modules("lasttoken", true, &json!({"max_seq_length": 12}));
    let engine = start_folder(folder.path(), &exact());
    let limits = engine.limits();
    assert_eq!(limits.max_text_len, 12);
    assert!(limits.max_model_len > 12, "{limits:?}");
    let message = super::rejection(engine.embed(text(&[5; 13]))).await;
    assert!(message.contains("13 tokens, the most is 12"), "{message}");
    assert_eq!(vector(engine.embed(text(&[5; 12]))).await.len(), limits.embedding_size);
}

/// A decoder's folder as `AutoModel` saves it: its class, no prefix and no head.
fn headless(name: &str, class: &str, prefix: &str) -> TempDir {
    let from = parity::folder(name);
    let copy = tempfile::tempdir().unwrap();
    let config = std::fs::read(from.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    config["architectures"] = json!([class]);
    std::fs::write(copy.path().join("config.json"), config.to_string()).unwrap();
    let tensors = safetensors::load(from.join("model.safetensors"), &Device::Cpu).unwrap();
    let tensors = tensors
        .into_iter()
        .filter(|(name, _)| !name.starts_with("lm_head"))
        .map(|(name, tensor)| (name.strip_prefix(prefix).unwrap_or(&name).to_owned(), tensor))
        .collect();
    safetensors::save(&tensors, copy.path().join("model.safetensors")).unwrap();
    copy
}

#[tokio::test]
async fn decoders_that_were_saved_without_their_head_embed() {
    for (name, class, prefix) in [
        ("qwen3", "Qwen3Model", "model."),
        ("qwen2", "Qwen2Model", "model."),
        ("llama3", "LlamaModel", "model."),
        ("mistral", "MistralModel", "model."),
        ("gemma2", "Gemma2Model", "model."),
        ("gemma3", "Gemma3TextModel", "model."),
        ("phi3", "Phi3Model", "model."),
        ("olmo2", "Olmo2Model", "model."),
        ("gpt2", "GPT2Model", "transformer."),
        ("gpt_neox", "GPTNeoXModel", "gpt_neox."),
        ("bloom", "BloomModel", "transformer."),
    ] {
        let folder = headless(name, class, prefix);
        let engine = start_folder(folder.path(), &exact());
        assert!(!engine.limits().generates, "{class}");
        let vocab = u32::try_from(engine.limits().vocab_size).unwrap();
        for run in runs_of(name) {
            let ours = vector(engine.embed(text(&parity::prompt(run.prompt, vocab)))).await;
            assert_within(&ours, &scaled(&run.last), 2e-4, class);
        }
    }
}
