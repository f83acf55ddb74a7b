//! Hugging Face folders: single file, shards, embedded, and everything that can be wrong.

use std::path::Path;
use std::sync::{Arc, Mutex};

use candle_core::{DType, Device};
use proptest::prelude::*;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::safetensors::SafetensorsSource;
use sconce::weights::source::ModelSource;
use sconce::weights::{TensorSource, WeightError, Weights};

use super::checkpoint;

fn open(folder: &Path) -> Result<ModelSource, WeightError> {
    ModelSource::open(
        &ModelRef::parse(folder.to_str().unwrap(), None)?,
        &HubOptions::offline(folder),
    )
}

fn refused(folder: &Path) -> String {
    open(folder).unwrap_err().to_string()
}

/// Why a folder whose `model.safetensors` has these bytes is refused.
fn refused_file(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    checkpoint::write(folder.path());
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let message = refused(folder.path());
    assert!(message.contains("model.safetensors"), "{message}");
    message
}

fn assert_holds_all_tensors(source: &ModelSource) {
    let weights = source.weights(&Device::Cpu);
    for (name, expected) in checkpoint::tensors() {
        let stored = weights.stored(&name, expected.dims()).unwrap();
        assert_eq!(stored.dense_dtype(), Some(expected.dtype()), "{name}");
        let read = stored.to_tensor(expected.dtype()).unwrap();
        assert_eq!(checkpoint::values(&read), checkpoint::values(&expected), "{name}");
    }
}

#[test]
fn a_single_file_reads_back_equal() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint::write(folder.path());
    std::fs::write(folder.path().join("tokenizer.json"), "{\"x\": 1}").unwrap();
    std::fs::write(folder.path().join("generation_config.json"), "{\"top_k\": 3}").unwrap();
    let source = open(folder.path()).unwrap();
    assert_holds_all_tensors(&source);
    source.release_pages();
    assert_holds_all_tensors(&source);
    assert_eq!(source.weight_bytes(), 6 * 4 * 2 + 3 * 4 * 2 + 4 * 4);
    assert_eq!(source.config["model_type"], "llama");
    assert_eq!(source.generation_config.as_ref().unwrap()["top_k"], 3);
    assert_eq!(source.tokenizer_json.as_deref(), Some(&b"{\"x\": 1}"[..]));
    assert_eq!(source.name, folder.path().file_name().unwrap().to_str().unwrap());
}

#[test]
fn progress_counts_the_tensors_that_were_used() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint::write(folder.path());
    let source = open(folder.path()).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = told.clone();
    let sink = move |loaded, total| sink.lock().unwrap().push((loaded, total));
    let weights = source.weights(&Device::Cpu).with_progress(Arc::new(sink));
    let embedding = weights.stored("model.embed_tokens.weight", &[6, 4]).unwrap();
    assert_eq!(*told.lock().unwrap(), []);
    drop(embedding);
    weights.scope("model").dense("norm.weight", &[4], DType::F32).unwrap();
    assert_eq!(*told.lock().unwrap(), [(48, 88), (64, 88)]);
}

#[test]
fn a_differently_named_single_file_is_found() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint::write(folder.path());
    let (from, to) = ("model.safetensors", "weights.safetensors");
    std::fs::rename(folder.path().join(from), folder.path().join(to)).unwrap();
    assert_holds_all_tensors(&open(folder.path()).unwrap());
}

#[test]
fn the_embedded_model_reads_back_equal() {
    let weights: &'static [u8] = checkpoint::safetensors_bytes().leak();
    let files: [(&str, &'static [u8]); 3] = [
        ("config.json", b"{}"),
        ("model.safetensors", weights),
        ("chat_template.jinja", b"{{ messages }}"),
    ];
    let source = ModelSource::embedded("demo", &files).unwrap();
    assert_holds_all_tensors(&source);
    assert_eq!(source.chat_template.as_deref(), Some("{{ messages }}"));
    assert_eq!(source.name, "demo");
}

/// Each tensor in its own shard, with an index.
fn write_shards(folder: &Path) -> Vec<String> {
    let mut map = serde_json::Map::new();
    let mut files = Vec::new();
    for (index, (name, tensor)) in checkpoint::tensors().into_iter().enumerate() {
        let file = format!("model-{index:05}.safetensors");
        safetensors::serialize_to_file([(name.clone(), tensor)], None, &folder.join(&file))
            .unwrap();
        map.insert(name, file.clone().into());
        files.push(file);
    }
    write_index(folder, &map.into());
    std::fs::write(folder.join("config.json"), "{}").unwrap();
    files
}

fn write_index(folder: &Path, weight_map: &serde_json::Value) {
    let index = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": weight_map});
    std::fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

#[test]
fn shards_read_back_equal() {
    let folder = tempfile::tempdir().unwrap();
    write_shards(folder.path());
    assert_holds_all_tensors(&open(folder.path()).unwrap());
}

#[test]
fn a_missing_shard_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let files = write_shards(folder.path());
    std::fs::remove_file(folder.path().join(&files[1])).unwrap();
    let message = refused(folder.path());
    assert!(message.contains(&files[1]) && message.contains("1 tensors"), "{message}");
}

#[test]
fn an_index_that_names_another_shard_than_holds_the_tensor_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = write_shards(folder.path());
    let wrong = serde_json::json!({"model.norm.weight": files[0], "model.embed_tokens.weight":
        files[1], "model.layers.0.mlp.up_proj.weight": files[2], "ghost": files[2]});
    write_index(folder.path(), &wrong);
    let message = refused(folder.path());
    assert!(message.contains("should be in") && message.contains("index.json"), "{message}");
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = write_shards(folder.path());
    std::fs::copy(folder.path().join(&files[0]), folder.path().join(&files[1])).unwrap();
    assert!(refused(folder.path()).contains("is also in"));
}

#[test]
fn an_index_must_not_lead_outside_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    write_shards(folder.path());
    for file in ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "", "passwd"] {
        write_index(folder.path(), &serde_json::json!({"t": file}));
        let message = refused(folder.path());
        assert!(message.contains("without folders"), "{file}: {message}");
    }
    for map in [serde_json::json!({}), serde_json::json!([]), serde_json::json!({"t": 1})] {
        write_index(folder.path(), &map);
        assert!(refused(folder.path()).contains("index.json"), "{map}");
    }
}

#[test]
fn truncated_files_say_how_much_is_missing() {
    let whole = checkpoint::safetensors_bytes();
    let message = refused_file(&whole[..whole.len() - 5]);
    assert!(message.contains("88 bytes of data, the file has 83"), "{message}");
    assert!(refused_file(&whole[..20]).contains("the file has 12"));
    assert!(refused_file(&whole[..3]).contains("3 bytes"));
    assert!(refused_file(b"").contains("empty"));
    assert!(refused_file(&u64::MAX.to_le_bytes()).contains("the file has 0"));
}

#[test]
fn bad_headers_name_the_tensor() {
    let header = |entry: &str| refused_file(&checkpoint::with_header(entry, 16));
    let cases = [
        (r#"{"t": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}}"#, "8 bytes of data"),
        (r#"{"t": {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}}"#, "start <= end"),
        (r#"{"t": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}"#, "need 32 bytes"),
        (r#"{"t": {"dtype": "X9", "shape": [4], "data_offsets": [0, 16]}}"#, "dtype `X9`"),
        (r#"{"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}"#, "8 bytes follow"),
        (r#"{"t": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}"#, "expected 0"),
        (r#"{"t": {"dtype": "F32", "shape": [4]}}"#, "data_offsets"),
        (
            r#"{"t": {"dtype": "F32", "shape": [4294967296, 4294967296, 4294967296],
            "data_offsets": [0, 16]}}"#,
            "no file can hold",
        ),
        (
            r#"{"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "u": {"dtype": "F32", "shape": [3], "data_offsets": [4, 16]}}"#,
            "overlap",
        ),
        ("[]", "expected an object"),
        ("not json", "not valid"),
    ];
    for (entry, expected) in cases {
        let message = header(entry);
        assert!(message.contains(expected), "{entry}: {message}");
        assert!(!entry.contains("\"t\"") || message.contains('t'), "{message}");
    }
}

#[test]
fn other_things_with_the_name_of_a_safetensors_file_are_recognized() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 988097824\n";
    let message = refused_file(pointer.as_bytes());
    assert!(message.contains("git-lfs pointer") && message.contains("988097824"), "{message}");
    assert!(refused_file(b"PK\x03\x04 and the rest of a zip archive").contains("pickle"));
    assert!(refused_file(b"<!DOCTYPE html><html>").contains("HTML"));
}

#[test]
fn an_unsupported_dtype_is_named_when_the_tensor_is_asked_for() {
    for dtype in ["I64", "F8_E4M3", "F64", "BOOL"] {
        let size = if dtype == "I64" || dtype == "F64" { 16 } else { 2 };
        let header = format!(
            r#"{{"t": {{"dtype": "{dtype}", "shape": [2], "data_offsets": [0, {size}]}}}}"#
        );
        let folder = tempfile::tempdir().unwrap();
        checkpoint::write(folder.path());
        let bytes = checkpoint::with_header(&header, size);
        std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        let source = open(folder.path()).unwrap();
        let error = source.weights(&Device::Cpu).stored("t", &[2]).unwrap_err().to_string();
        assert!(error.contains(&format!("dtype {dtype}")), "{error}");
        assert!(error.contains("expected BF16, F16 or F32"), "{error}");
    }
}

#[test]
fn a_vector_with_nan_or_infinity_is_refused() {
    let vector = |value: f32, dtype| {
        let tensor = candle_core::Tensor::new(&[1.0, value, 2.0], &Device::Cpu).unwrap();
        let tensor = tensor.to_dtype(dtype).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        safetensors::serialize_to_file([("norm", tensor)], None, &path).unwrap();
        let source = Arc::new(SafetensorsSource::open(folder.path()).unwrap());
        Weights::new(source, Device::Cpu).stored("norm", &[3]).map(|_| ())
    };
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        assert!(vector(1e4, dtype).is_ok());
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = vector(bad, dtype).unwrap_err().to_string();
            assert!(error.contains("element 1 is") && error.contains("`norm`"), "{error}");
        }
    }
}

#[test]
fn folders_without_usable_weights_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    assert!(refused(folder.path()).contains("the folder is empty"));
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    assert!(refused(folder.path()).contains("no weights: expected model.safetensors"));
    std::fs::write(folder.path().join("pytorch_model.bin"), "x").unwrap();
    let message = refused(folder.path());
    assert!(message.contains("safe_serialization=True"), "{message}");
    std::fs::write(folder.path().join("adapter_model.safetensors"), "x").unwrap();
    assert!(refused(folder.path()).contains("adapter"));
    std::fs::write(folder.path().join("b.safetensors"), "x").unwrap();
    let message = refused(folder.path());
    assert!(message.contains("2 .safetensors files but no model.safetensors.index.json"));
}

#[test]
fn a_missing_or_invalid_config_is_named() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint::write(folder.path());
    let config = folder.path().join("config.json");
    for (text, expected) in [("{\"a\": ", "not valid JSON"), ("[1]", "an array"), ("", "empty")] {
        std::fs::write(&config, text).unwrap();
        let message = refused(folder.path());
        assert!(message.contains("config.json") && message.contains(expected), "{message}");
    }
    std::fs::remove_file(&config).unwrap();
    assert!(refused(folder.path()).contains("config.json is missing"));
    std::fs::write(folder.path().join("params.json"), "{}").unwrap();
    assert!(refused(folder.path()).contains("original release format"));
}

#[test]
fn absent_tensors_and_other_shapes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint::write(folder.path());
    let source = open(folder.path()).unwrap();
    let weights = source.weights(&Device::Cpu).scope("model");
    let missing = weights.stored("ghost", &[1]).unwrap_err().to_string();
    assert!(missing.contains("`model.ghost` is missing from"), "{missing}");
    let shape = weights.stored("norm.weight", &[5]).unwrap_err().to_string();
    assert!(shape.contains("has shape [4], expected [5]"), "{shape}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any prefix of a valid file is refused, and any flipped byte is refused or still readable;
    /// nothing panics.
    #[test]
    fn damaged_files_never_panic(cut in 0usize..500, at in 0usize..500, flip in 1u8..=255) {
        let whole = checkpoint::safetensors_bytes();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let cut = cut % whole.len();
        std::fs::write(&path, &whole[..cut]).unwrap();
        prop_assert!(SafetensorsSource::open(folder.path()).is_err());
        let mut damaged = whole.clone();
        let at = at % whole.len();
        damaged[at] ^= flip;
        std::fs::write(&path, &damaged).unwrap();
        if let Ok(source) = SafetensorsSource::open(folder.path()) {
            for name in source.names() {
                let _ = source.read(&name);
            }
        }
    }
}
