//! What is read, and the undamaged inputs.

use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use sconce::models::config::HfConfig;
use sconce::text::tokenizer::Tokenizer;
use sconce::text::tokenizer_config::TokenizerConfig;
use sconce::text::vocabulary::{VocabularyError, sentencepiece, tekken, tiktoken};
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;

use super::Target;
use crate::parity::converted;
use crate::weights::gguf_file::GgufFile;

pub(super) const MIB: usize = 1 << 20;

pub(super) fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(path).unwrap()
}

/// A folder that the files of one thread are written to again and again.
pub(super) fn folder(name: &str) -> PathBuf {
    thread_local! {
        static FOLDER: tempfile::TempDir = tempfile::tempdir().unwrap();
    }
    let folder = FOLDER.with(|folder| folder.path().join(name));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Reads configuration and tensors as loading a model does.
fn read_source(model: &ModelRef, names: &[(&str, &[usize])]) {
    let options = HubOptions::offline(Path::new("."));
    let Ok(source) = ModelSource::open(model, &options) else { return };
    if let Ok(config) = HfConfig::from_value(&source.config) {
        let _ = sconce::models::spec(&config);
    }
    let weights = source.weights(&Device::Cpu);
    for (name, shape) in names {
        let _ = weights.stored(name, shape).map(|tensor| tensor.bytes().len());
    }
}

pub(super) fn gguf() -> Target {
    let small = |architecture| {
        let mut file = GgufFile::new(architecture, GgmlDType::Q8_0);
        // Tensors behind the header are read by other tests.
        let names = ["token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight"];
        file.tensors.retain(|name, _| names.contains(&name.as_str()));
        file.bytes()
    };
    let names = ["llama3", "phi3_long", "gemma3", "dots1", "apertus", "gpt_neox", "mixtral"];
    let converted = names.into_iter().filter_map(converted);
    Target {
        name: "gguf",
        inputs: converted.chain(["llama", "qwen3"].map(small)).collect(),
        read: |bytes| {
            let path = folder("gguf").join("model.gguf");
            std::fs::write(&path, bytes).unwrap();
            let layer = "model.layers.0";
            read_source(
                &ModelRef::GgufFile(path),
                &[
                    ("model.embed_tokens.weight", &[160, 32]),
                    ("model.norm.weight", &[32]),
                    (&format!("{layer}.self_attn.q_proj.weight"), &[32, 32]),
                    (&format!("{layer}.block_sparse_moe.experts.3.w1.weight"), &[24, 32]),
                    (&format!("{layer}.mlp.act_fn.alpha_p"), &[1]),
                    ("gpt_neox.layers.0.attention.query_key_value.weight", &[96, 32]),
                ],
            );
        },
        // A token of no letters has 8 bytes in the file and 24 in memory; a spec has a hundred for
        // each of at most 4096 layers.
        held: (16, MIB),
        single: (4, MIB),
    }
}

pub(super) fn safetensors() -> Target {
    let names = ["llama3", "gemma3", "mixtral", "ernie4_5_moe"];
    let whole = names.map(|name| fixture(&format!("parity/{name}/model.safetensors")));
    Target {
        name: "safetensors",
        inputs: whole.to_vec(),
        read: |bytes| {
            let folder = folder("safetensors");
            std::fs::write(folder.join("model.safetensors"), bytes).unwrap();
            std::fs::write(folder.join("config.json"), "{}").unwrap();
            read_source(
                &ModelRef::Folder(folder),
                &[
                    ("model.embed_tokens.weight", &[320, 32]),
                    ("model.norm.weight", &[32]),
                    ("model.layers.0.mlp.down_proj.weight", &[32, 56]),
                ],
            );
        },
        held: (16, MIB),
        single: (4, MIB / 4),
    }
}

pub(super) fn tokenizers() -> Target {
    let names = [
        "byte_level.json",
        "tekken.json",
        "small.tiktoken",
        "tokenizer.model",
        "unigram.model",
        "unigram_plain.model",
    ];
    Target {
        name: "tokenizers",
        inputs: names.map(|name| fixture(&format!("tokenizers/{name}"))).to_vec(),
        read: |bytes| {
            let config = TokenizerConfig::default();
            let built = |vocabulary: Result<_, VocabularyError>| {
                let vocabulary: sconce::text::vocabulary::Vocabulary = vocabulary.ok()?;
                vocabulary.tokenizer().ok()
            };
            let tokenizer = if tiktoken::is_one(bytes) {
                built(tiktoken::vocabulary(bytes, Some("QWenTokenizer")))
            } else if bytes.starts_with(b"{\"version") {
                Tokenizer::from_json(bytes, &config).ok()
            } else if bytes.starts_with(b"{") {
                built(tekken::vocabulary(bytes))
            } else {
                built(sentencepiece::vocabulary(bytes))
            };
            let Some(tokenizer) = tokenizer else { return };
            let text = "The fox's 12345 é 你好 <|im_start|> \u{1}ﬁ   ";
            if let Ok(ids) = tokenizer.encode(text, true) {
                let _ = tokenizer.decode(&ids, true);
            }
            let _ = tokenizer.encode_plain(text);
        },
        // Of regular expressions and merges, which are longer in memory than in a file.
        held: (256, 64 * MIB),
        single: (32, 16 * MIB),
    }
}
