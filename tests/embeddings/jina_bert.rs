//! Jina's second embeddings beside candle-transformers' network of the same architecture.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use candle_core::{DType, Device, Tensor, safetensors};
use candle_nn::{Activation, Module, VarBuilder};
use candle_transformers::models::jina_bert::{BertModel, Config, PositionEmbeddingType};
use sconce::config::{EngineConfig, Pooling};
use sconce::engine::Outputs;
use sconce::engine::request::{EmbeddingRequest, Wanted};
use sconce::engine::startup::Loaded;
use sconce::metrics;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;
use serde_json::json;
use tempfile::TempDir;

use super::{assert_near, folders, load, raw, start_folder, text, vector};
use crate::weights::gguf_file::GgufFile;

const HIDDEN: usize = 48;
const INNER: usize = 40;
const VOCAB: usize = 70;
/// No power of two, so that slopes are of two series.
const HEADS: usize = 6;
const LAYERS: usize = 2;
const CONTEXT: usize = 128;

/// Random tensors under the authors' names.
fn tensors() -> HashMap<String, Tensor> {
    let (h, i) = (HIDDEN, INNER);
    let mut shapes = vec![
        ("embeddings.word_embeddings.weight".to_owned(), vec![VOCAB, h]),
        ("embeddings.token_type_embeddings.weight".to_owned(), vec![2, h]),
    ];
    let mut with_bias = vec![("embeddings.LayerNorm".to_owned(), vec![h])];
    for layer in (0..LAYERS).map(|layer| format!("encoder.layer.{layer}")) {
        for part in ["self.query", "self.key", "self.value", "output.dense"] {
            with_bias.push((format!("{layer}.attention.{part}"), vec![h, h]));
        }
        with_bias.push((format!("{layer}.attention.output.LayerNorm"), vec![h]));
        with_bias.push((format!("{layer}.mlp.wo"), vec![h, i]));
        with_bias.push((format!("{layer}.mlp.layernorm"), vec![h]));
        shapes.push((format!("{layer}.mlp.gated_layers.weight"), vec![2 * i, h]));
    }
    for (name, shape) in with_bias {
        shapes.push((format!("{name}.bias"), vec![shape[0]]));
        shapes.push((format!("{name}.weight"), shape));
    }
    let mut state = 7;
    let made = shapes.into_iter().map(|(name, shape)| {
        let values: Vec<f32> =
            (0..shape.iter().product()).map(|_| folders::next(&mut state)).collect();
        (name, Tensor::from_vec(values, shape, &Device::Cpu).unwrap())
    });
    made.collect()
}

fn folder(feed_forward: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "architectures": ["JinaBertForMaskedLM"], "vocab_size": VOCAB, "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": INNER,
        "hidden_act": "gelu", "max_position_embeddings": CONTEXT, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "position_embedding_type": "alibi",
        "feed_forward_type": feed_forward,
    });
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    safetensors::save(&tensors(), folder.path().join("model.safetensors")).unwrap();
    folder
}

#[tokio::test]
async fn hidden_states_are_those_of_candle_transformers() {
    let config = Config::new(
        VOCAB,
        HIDDEN,
        LAYERS,
        HEADS,
        INNER,
        Activation::Gelu,
        CONTEXT,
        2,
        0.02,
        1e-12,
        0,
        PositionEmbeddingType::Alibi,
    );
    let weights = VarBuilder::from_tensors(tensors(), DType::F32, &Device::Cpu);
    let theirs = BertModel::new(weights, &config).unwrap();
    let folder = folder("geglu");
    let ours = start_folder(folder.path(), &EngineConfig::default());
    for length in [1, 7, 90] {
        let ids: Vec<u32> = (0..length).map(|i| (i * i * 13 + length * 7) % 66 + 4).collect();
        let input = Tensor::new(&ids[..], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
        let expected = theirs.forward(&input).unwrap().flatten_all().unwrap();
        let wanted = Wanted { outputs: Some(Outputs::HiddenStates), ..Wanted::default() };
        let found = vector(ours.embed(EmbeddingRequest { wanted, ..text(&ids) })).await;
        let expected: Vec<f32> = expected.to_vec1().unwrap();
        assert_near(&found, &expected, &format!("{length} tokens"));
    }
}

/// The same model as that format's own converter writes it.
fn gguf(path: &Path) {
    const NAMES: [(&str, &str); 10] = [
        ("embeddings.word_embeddings.", "token_embd."),
        ("embeddings.token_type_embeddings.", "token_types."),
        ("embeddings.LayerNorm.", "token_embd_norm."),
        ("attention.self.query.", "attn_q."),
        ("attention.self.key.", "attn_k."),
        ("attention.self.value.", "attn_v."),
        ("attention.output.dense.", "attn_output."),
        ("attention.output.LayerNorm.", "attn_output_norm."),
        ("mlp.gated_layers.", "ffn_up."),
        ("mlp.wo.", "ffn_down."),
    ];
    let mut file = GgufFile::new("jina-bert-v2", GgmlDType::F32);
    file.tensors.clear();
    for (name, tensor) in tensors() {
        let own = NAMES.iter().find(|(theirs, _)| name.contains(theirs));
        let (theirs, own) = own.copied().unwrap_or(("mlp.layernorm.", "layer_output_norm."));
        let name = name.replace("encoder.layer.", "blk.").replace(theirs, own);
        file.add(&name, tensor, GgmlDType::F32);
    }
    for end in ["head_count_kv", "key_length", "value_length", "layer_norm_rms_epsilon"] {
        file.metadata.remove(&format!("jina-bert-v2.attention.{end}"));
    }
    file.metadata.remove("jina-bert-v2.rope.freq_base");
    for (end, count) in [
        ("context_length", CONTEXT),
        ("embedding_length", HIDDEN),
        ("block_count", LAYERS),
        ("feed_forward_length", INNER),
        ("attention.head_count", HEADS),
    ] {
        let count = Value::U32(u32::try_from(count).unwrap());
        file.set(&format!("jina-bert-v2.{end}"), count);
    }
    file.set("jina-bert-v2.attention.layer_norm_epsilon", Value::F32(1e-12));
    file.set("jina-bert-v2.attention.causal", Value::Bool(false));
    file.set("jina-bert-v2.pooling_type", Value::U32(1));
    file.write(path);
}

#[tokio::test]
async fn a_gguf_file_gives_the_vectors_of_its_folder() {
    let folder = folder("geglu");
    let theirs = start_folder(folder.path(), &EngineConfig::default());
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("model.gguf");
    gguf(&path);
    let options = HubOptions::offline(file.path());
    let source = ModelSource::open(&ModelRef::GgufFile(path), &options).unwrap();
    let config = EngineConfig::default();
    let loaded = Loaded::load(&source, &config, Arc::new(|_, _| {}), None).unwrap();
    let ours = loaded.start(&config, metrics::install("jina-bert")).unwrap().handle;
    assert_eq!((ours.limits().pooling, ours.limits().normalizes), (Pooling::Mean, true));
    // The file has a vocabulary of its own.
    let ids = [0, 3, 5, 5, 1, 2, 4];
    let request = || EmbeddingRequest { wanted: raw(), ..text(&ids) };
    let expected = vector(theirs.embed(request())).await;
    assert_near(&vector(ours.embed(request())).await, &expected, "gguf");
}

#[test]
fn another_feed_forward_part_is_refused() {
    let folder = folder("original");
    let message = load(folder.path(), &EngineConfig::default()).err().unwrap();
    assert!(message.contains("`feed_forward_type` is \"original\""), "{message}");
}
