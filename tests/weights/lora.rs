//! Adapter folders that can't be used, and what the messages say.

use candle_core::{DType, Device};
use sconce::layers::adapter::{Projection, Site};
use sconce::models::adapter::{AdaptableModule, AdapterForm, AdapterLayout};
use sconce::weights::WeightError;
use sconce::weights::hub::HubOptions;
use sconce::weights::lora::{LoraFolder, find};
use serde_json::json;

use crate::lora_folder::{WrittenAdapter, filled};

const QUERY: &str = "model.layers.0.self_attn.q_proj";
const NAME: &str = "base_model.model.model.layers.0.self_attn.q_proj";

fn layout() -> AdapterLayout {
    let query = Site::Layer(0, Projection::Query);
    let path = "layers.0.self_attn.q_proj".to_owned();
    let head = AdaptableModule::whole("lm_head".to_owned(), 4, 9, Site::Head);
    let modules = vec![AdaptableModule::whole(path, 4, 6, query), head];
    AdapterLayout { roots: &["model.", "model.language_model."], modules, embeddings: Vec::new() }
}

fn load(written: &WrittenAdapter) -> Result<usize, WeightError> {
    let folder = LoraFolder::open(written.path().as_ref())?;
    let form = AdapterForm { device: Device::Cpu, kind: None, max_rank: 16 };
    layout().load(&folder, &form).map(|adapter| adapter.size_in_bytes())
}

fn query() -> WrittenAdapter {
    WrittenAdapter::new(&[(QUERY, 4, 6)], 1)
}

#[test]
fn modules_are_found_under_every_root_and_heads_anywhere() {
    for path in
        [QUERY, "model.language_model.layers.0.self_attn.q_proj", "layers.0.self_attn.q_proj"]
    {
        assert!(load(&WrittenAdapter::new(&[(path, 4, 6)], 1)).unwrap() > 0, "{path}");
    }
    for path in ["lm_head", "language_model.lm_head"] {
        assert!(load(&WrittenAdapter::new(&[(path, 4, 9)], 1)).unwrap() > 0, "{path}");
    }
}

#[test]
fn what_can_not_be_used_is_refused_with_its_name() {
    let up = format!("{NAME}.lora_B.weight");
    let change = |name: &str, tensor| {
        query().with_tensors(|tensors| {
            tensors.insert(name.to_owned(), tensor);
        })
    };
    let config = |fields| query().with_config(&fields);
    let twice = [(QUERY, 4, 6), ("layers.0.self_attn.q_proj", 4, 6)];
    for (written, expected) in [
        (query().with_tensors(|tensors| drop(tensors.remove(&up))), "lora_B.weight` is missing"),
        (change("base_model.model.x.weight", filled(1.0, 1, 1)), "`base_model.model.x.weight`"),
        (change(&format!("{NAME}.lora_magnitude_vector"), filled(1.0, 1, 6)), "magnitude"),
        (change("base_model.model.lm_head.base_layer.weight", filled(1.0, 9, 4)), "=False"),
        (change("base_model.model.e.lora_embedding_A", filled(1.0, 2, 4)), "of embeddings"),
        (change(&up, filled(1.0, 5, 2)), "has shape [5, 2], expected [6, 2]"),
        (change(&up, filled(f32::NAN, 6, 2)), "element 0 is NaN"),
        (change(&up, filled(f32::INFINITY, 6, 2)), "element 0 is inf"),
        (change(&up, filled(1.0, 6, 2).to_dtype(DType::U8).unwrap()), "dtype U8 is not supported"),
        (config(json!({"r": 3})), "has shape [2, 4], expected [3, 4]"),
        (config(json!({"r": 17})), "is 17, max-lora-rank is 16"),
        (config(json!({"target_modules": ["k_proj"]})), "none of the modules that adapter_config"),
        (config(json!({"use_dora": true})), "DoRA is not supported"),
        (
            WrittenAdapter::new(&[("model.layers.0.mlp.experts.3.up_proj", 4, 6)], 1),
            "adapters can change q_proj, lm_head of this model's layers",
        ),
        (WrittenAdapter::new(&twice, 1), "is there under two names"),
        (query().with_tensors(std::collections::HashMap::clear), "there is no tensor in it"),
    ] {
        let message = load(&written).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn files_that_are_missing_or_pickled_are_named() {
    let written = query();
    let tensors = written.file("adapter_model.safetensors");
    std::fs::rename(&tensors, written.file("adapter_model.bin")).unwrap();
    let message = load(&written).unwrap_err().to_string();
    assert!(
        message.contains("adapter_model.safetensors is missing; adapter_model.bin is a pickle")
    );
    std::fs::remove_file(written.file("adapter_config.json")).unwrap();
    assert!(load(&written).unwrap_err().to_string().contains("adapter_config.json is missing"));
    let cut = query();
    let tensors = cut.file("adapter_model.safetensors");
    let bytes = std::fs::read(&tensors).unwrap();
    std::fs::write(&tensors, &bytes[..bytes.len() - 4]).unwrap();
    assert!(load(&cut).unwrap_err().to_string().contains("truncated"));
}

#[test]
fn an_adapter_is_found_in_a_folder_or_in_the_cache() {
    let written = query();
    let cache = tempfile::tempdir().unwrap();
    let options = HubOptions::offline(cache.path());
    assert_eq!(find(written.path(), &options).unwrap().unwrap().to_str(), Some(written.path()));
    assert_eq!(find("/no/such/folder", &options).unwrap(), None);
    assert!(matches!(find("org/adapter", &options), Err(WeightError::Hub(_))));

    let root = cache.path().join("models--org--adapter");
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let snapshot = root.join("snapshots").join(commit);
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(root.join("refs")).unwrap();
    std::fs::write(root.join("refs/main"), commit).unwrap();
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(written.file(name), snapshot.join(name)).unwrap();
    }
    assert_eq!(find("org/adapter", &options).unwrap(), Some(snapshot));
}
