//! The list of architectures that the GGUF format has: each is read, or refused with a reason.

use std::path::Path;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;

use super::gguf_file::GgufFile;

/// What is said of a small file of this architecture, if it is not read.
fn message(name: &str) -> String {
    let mut file = GgufFile::new("llama", GgmlDType::F32);
    file.set("general.architecture", Value::String(name.to_owned()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    file.write(&path);
    let opened = ModelSource::open(&ModelRef::GgufFile(path), &HubOptions::offline(folder.path()));
    opened.err().map_or_else(String::new, |error| error.to_string())
}

#[test]
fn every_architecture_of_the_format_is_read_or_refused_with_a_reason() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf");
    let names = std::fs::read_to_string(fixtures.join("architectures.json")).unwrap();
    let names: Vec<String> = serde_json::from_str(&names).unwrap();
    let is_refused = |name: &&String| message(name).contains("is not supported in GGUF");
    let (refused, read): (Vec<_>, Vec<_>) = names.iter().partition(is_refused);
    for name in &refused {
        let why = message(name);
        assert!(why.contains("is not supported in GGUF ("), "{name}: {why}");
    }
    assert!(read.len() > 100, "{}", read.len());
    assert!(message("other").contains("`other` is not supported in GGUF; "));
}
