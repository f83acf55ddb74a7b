//! Tokenizers of folders that are written as GGUF files: the same ids, or no file.

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde_json::{Value, json};

use super::convert;
use crate::app::tokenizer::tokenizer;
use crate::config::WeightKind;
use crate::text::tokenizer::Tokenizer;
use crate::weights::hub::HubOptions;
use crate::weights::model_ref::ModelRef;
use crate::weights::source::ModelSource;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A folder of a small Llama with so many rows of embeddings and these files.
fn checkpoint(rows: usize, files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = fixtures().join("parity/llama2");
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(source.join("config.json")).unwrap()).unwrap();
    config["vocab_size"] = rows.into();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let file = source.join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(file, &Device::Cpu).unwrap();
    for name in ["model.embed_tokens.weight", "lm_head.weight"] {
        let zeros = Tensor::zeros((rows, 32), DType::BF16, &Device::Cpu).unwrap();
        tensors.insert(name.to_owned(), zeros);
    }
    let file = folder.path().join("model.safetensors");
    candle_core::safetensors::save(&tensors, file).unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn open(reference: &ModelRef) -> ModelSource {
    ModelSource::open(reference, &HubOptions::offline(Path::new("."))).unwrap()
}

/// The tokenizers of a folder and of the file that is made of it, and the name of the file's pre-tokenizer.
fn both(folder: &Path) -> anyhow::Result<([Tokenizer; 2], Option<String>)> {
    let out = tempfile::tempdir()?;
    let file = out.path().join("model.gguf");
    convert(folder, &file, WeightKind::Q8_0, &mut |_, _| {})?;
    let source = open(&ModelRef::GgufFile(file));
    let vocabulary = source.gguf_vocabulary.clone();
    let pre = vocabulary.as_ref().and_then(|vocabulary| vocabulary.pre_tokenizer.clone());
    let own = tokenizer(&open(&ModelRef::Folder(folder.to_owned())), None)?;
    Ok(([own, tokenizer(&source, vocabulary)?], pre))
}

fn same_ids([own, written]: &[Tokenizer; 2]) {
    let texts = std::fs::read(fixtures().join("odd_texts.json")).unwrap();
    let mut texts: Vec<String> = serde_json::from_slice(&texts).unwrap();
    // Readers of files and SentencePiece put spaces at other places around tokens that were added.
    texts.retain(|text| text != "<user>");
    for pair in texts.windows(2) {
        for text in [pair[0].clone(), pair.concat(), pair.join(" ")] {
            for special in [false, true] {
                let ids = |tokenizer: &Tokenizer| tokenizer.encode(&text, special).unwrap();
                assert_eq!(ids(own), ids(written), "{text:?}");
            }
        }
    }
}

/// The byte-level fixture with words that rules about digits cut apart, cut by `patterns`.
fn with_patterns(patterns: &[&str]) -> Value {
    let file = std::fs::read(fixtures().join("tokenizers/byte_level.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_slice(&file).unwrap();
    for (id, (left, right)) in (400..).zip([("7", "8"), ("78", "6"), ("786", "0")]) {
        tokenizer["model"]["vocab"][format!("{left}{right}")] = id.into();
        tokenizer["model"]["merges"].as_array_mut().unwrap().push(json!([left, right]));
    }
    // Tokens that are added come behind all others.
    for (id, added) in (403..).zip(tokenizer["added_tokens"].as_array_mut().unwrap()) {
        added["id"] = id.into();
    }
    let split = |pattern: &&str| {
        let pattern = json!({"Regex": pattern});
        json!({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false})
    };
    let bytes = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": patterns.is_empty(),
    });
    let steps: Vec<Value> = patterns.iter().map(split).chain([bytes]).collect();
    tokenizer["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": steps});
    tokenizer
}

#[test]
fn the_rules_that_cut_text_are_found_by_trying() {
    let threes = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let spelled_otherwise = format!("(?:{threes})");
    let cases: [(&[&str], &str); 4] = [
        (&[], "gpt-2"),
        (&[threes], "llama3"),
        (&[&spelled_otherwise], "llama3"),
        (
            &[
                r"\p{N}",
                r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
            ],
            "starcoder",
        ),
    ];
    for (patterns, expected) in cases {
        let json = with_patterns(patterns).to_string();
        let folder = checkpoint(420, &[("tokenizer.json", json.as_bytes())]);
        let (tokenizers, pre) = both(folder.path()).unwrap();
        same_ids(&tokenizers);
        assert_eq!(pre.as_deref(), Some(expected), "{patterns:?}");
        assert_eq!(tokenizers[1].token(415).as_deref(), Some("[PAD415]"));
    }
}

#[test]
fn rules_that_no_file_can_name_are_refused() {
    let twos = [r"\p{N}{1,2}", r"\p{L}+|\s+|[^\s\p{L}\p{N}]+"];
    let json = with_patterns(&twos).to_string();
    let folder = checkpoint(420, &[("tokenizer.json", json.as_bytes())]);
    let error = format!("{:#}", both(folder.path()).unwrap_err());
    assert!(
        error.contains("gives the ids of the folder's own") && error.contains("gpt-2"),
        "{error}"
    );
}

#[test]
fn sentencepiece_and_tekken_files_become_vocabularies() {
    let read = |name: &str| std::fs::read(fixtures().join("tokenizers").join(name)).unwrap();
    let (pieces, tekken) = (read("tokenizer.model"), read("tekken.json"));
    let files = [("tokenizer.model", pieces, "default"), ("tekken.json", tekken, "tekken")];
    for (name, bytes, expected) in files {
        let folder = checkpoint(600, &[(name, &bytes)]);
        let (tokenizers, pre) = both(folder.path()).unwrap();
        same_ids(&tokenizers);
        assert_eq!(pre.as_deref(), Some(expected), "{name}");
    }
}

#[test]
fn what_ends_an_answer_and_how_chats_are_rendered_is_in_the_file() {
    let json = with_patterns(&[]).to_string();
    let config = json!({
        "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": "{{ messages }}",
    });
    let generation = json!({"eos_token_id": [405, 3], "top_k": 20, "temperature": 0.5});
    let folder = checkpoint(
        420,
        &[
            ("tokenizer.json", json.as_bytes()),
            ("tokenizer_config.json", config.to_string().as_bytes()),
            ("generation_config.json", generation.to_string().as_bytes()),
        ],
    );
    let file = folder.path().join("out.gguf");
    convert(folder.path(), &file, WeightKind::F16, &mut |_, _| {}).unwrap();
    let source = open(&ModelRef::GgufFile(file));
    assert_eq!(source.chat_template.as_deref(), Some("{{ messages }}"));
    let generation = source.generation_config.unwrap();
    assert_eq!((&generation["top_k"], &generation["temperature"]), (&json!(20), &json!(0.5)));
    let ends = generation["eos_token_id"].as_array().unwrap();
    assert!(ends.contains(&json!(405)) && ends.contains(&json!(3)), "{ends:?}");
    let vocabulary = source.gguf_vocabulary.unwrap();
    assert_eq!((vocabulary.eos_token_id, vocabulary.padding_token_id), (Some(405), Some(403)));
    assert_eq!(vocabulary.token_types[404..408], [3, 3, 4, 5]);
}

#[test]
fn a_file_that_is_there_and_a_folder_that_is_quantized_are_left_alone() {
    let json = with_patterns(&[]).to_string();
    let folder = checkpoint(420, &[("tokenizer.json", json.as_bytes())]);
    let file = folder.path().join("out.gguf");
    std::fs::write(&file, "mine").unwrap();
    let run = |file: &Path| convert(folder.path(), file, WeightKind::F16, &mut |_, _| {});
    assert!(run(&file).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    assert!(run(&folder.path().join("absent/out.gguf")).is_err());
    let config = folder.path().join("config.json");
    let mut changed: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    changed["quantization_config"] = json!({"quant_method": "gptq", "bits": 4});
    std::fs::write(&config, changed.to_string()).unwrap();
    let error = format!("{:#}", run(&folder.path().join("other.gguf")).unwrap_err());
    assert!(error.contains("quantized already"), "{error}");
    assert!(!folder.path().join("other.gguf").exists());
}
