//! Folders that differ from the fixtures.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{Device, Tensor, safetensors};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::fixture;

/// A copy of a fixture.
pub(super) fn copy(name: &str) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_folder(&fixture(name), copy.path());
    copy
}

/// A copy of a fixture, with one of its JSON files changed.
pub(super) fn changed(name: &str, file: &str, change: impl FnOnce(&mut Value)) -> TempDir {
    let copy = copy(name);
    let path = copy.path().join(file);
    let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut json);
    std::fs::write(path, json.to_string()).unwrap();
    copy
}

pub(super) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            std::fs::copy(path, target).unwrap();
        }
    }
}

/// A copy of a fixture, with other names of tensors.
pub(super) fn renamed(name: &str, rename: fn(&str) -> String) -> TempDir {
    let copy = copy(name);
    let path = copy.path().join("model.safetensors");
    let tensors = safetensors::load(&path, &Device::Cpu).unwrap();
    let renamed: HashMap<String, Tensor> =
        tensors.into_iter().map(|(name, tensor)| (rename(&name), tensor)).collect();
    // The file is mapped no more, but it is a copy with the fixture's permissions.
    std::fs::remove_file(&path).unwrap();
    safetensors::save(&renamed, &path).unwrap();
    copy
}

/// As TensorFlow's BERT has them.
pub(super) fn with_old_norm_names(name: &str) -> String {
    name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
}

/// As checkpoints with a head have them.
pub(super) fn below_a_prefix(name: &str) -> String {
    format!("bert.{name}")
}

/// An encoder of two layers; all products but the smallest are as those of a large one.
pub(super) fn wide(hidden_size: usize, intermediate_size: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "architectures": ["BertModel"], "vocab_size": 70, "hidden_size": hidden_size,
        "intermediate_size": intermediate_size, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 40, "type_vocab_size": 2,
    });
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let (h, i) = (hidden_size, intermediate_size);
    let mut shapes = vec![
        ("embeddings.word_embeddings.weight".to_owned(), vec![70, h]),
        ("embeddings.position_embeddings.weight".to_owned(), vec![40, h]),
        ("embeddings.token_type_embeddings.weight".to_owned(), vec![2, h]),
    ];
    let mut norms = vec!["embeddings".to_owned()];
    for layer in (0..2).map(|layer| format!("encoder.layer.{layer}")) {
        for (part, outputs, inputs) in [
            ("attention.self.query", h, h),
            ("attention.self.key", h, h),
            ("attention.self.value", h, h),
            ("attention.output.dense", h, h),
            ("intermediate.dense", i, h),
            ("output.dense", h, i),
        ] {
            shapes.push((format!("{layer}.{part}.weight"), vec![outputs, inputs]));
            shapes.push((format!("{layer}.{part}.bias"), vec![outputs]));
        }
        norms.extend([format!("{layer}.attention.output"), format!("{layer}.output")]);
    }
    for norm in norms {
        shapes.push((format!("{norm}.LayerNorm.weight"), vec![h]));
        shapes.push((format!("{norm}.LayerNorm.bias"), vec![h]));
    }
    let mut state = 1_u32;
    let tensors: HashMap<String, Tensor> = shapes
        .into_iter()
        .map(|(name, shape)| {
            let count = shape.iter().product();
            let values: Vec<f32> = (0..count).map(|_| next(&mut state)).collect();
            (name, Tensor::from_vec(values, shape, &Device::Cpu).unwrap())
        })
        .collect();
    safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    folder
}

/// From -0.3 to 0.3.
pub(super) fn next(state: &mut u32) -> f32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    ((*state >> 8) as f32 / (1 << 24) as f32 - 0.5) * 0.6
}
