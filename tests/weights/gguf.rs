//! GGUF files: every kind reads back equal, metadata becomes a configuration, broken files are
//! refused in words.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use candle_core::{Device, Tensor};
use proptest::prelude::*;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;
use sconce::weights::{StoredTensor, WeightError};

use super::checkpoint;
use super::gguf_file::{
    self, FEED_FORWARD, GgufFile, HEAD_DIM, HEADS, HIDDEN, KEY_HEADS, VOCABULARY,
};

const QUANTIZED: [GgmlDType; 12] = [
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_0,
    GgmlDType::Q5_1,
    GgmlDType::Q8_0,
    GgmlDType::Q8_1,
    GgmlDType::Q2K,
    GgmlDType::Q3K,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
    GgmlDType::Q8K,
];

fn open_bytes(bytes: &[u8]) -> Result<ModelSource, WeightError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.Q8_0.gguf");
    std::fs::write(&path, bytes).unwrap();
    ModelSource::open(&ModelRef::GgufFile(path), &HubOptions::offline(folder.path()))
}

fn source_of(path: &Path) -> Result<ModelSource, WeightError> {
    let path = path.to_owned();
    let model = if path.is_dir() { ModelRef::Folder(path) } else { ModelRef::GgufFile(path) };
    ModelSource::open(&model, &HubOptions::offline(Path::new(".")))
}

fn open(file: &GgufFile) -> ModelSource {
    open_bytes(&file.bytes()).unwrap()
}

fn refused(file: &GgufFile) -> String {
    refused_bytes(&file.bytes())
}

fn refused_bytes(bytes: &[u8]) -> String {
    let message = open_bytes(bytes).unwrap_err().to_string();
    assert!(message.contains("tiny.Q8_0.gguf"), "{message}");
    message
}

fn stored(source: &ModelSource, name: &str, shape: &[usize]) -> StoredTensor {
    source.weights(&Device::Cpu).stored(name, shape).unwrap()
}

fn dense(source: &ModelSource, name: &str, shape: &[usize]) -> Tensor {
    let tensor = stored(source, name, shape);
    let dtype = tensor.dense_dtype().unwrap_or_else(|| panic!("{name} is {tensor:?}"));
    tensor.to_tensor(dtype).unwrap()
}

/// Bytes of a quantized tensor, as read.
fn quantized_bytes(source: &ModelSource, name: &str, shape: &[usize]) -> Vec<u8> {
    let tensor = stored(source, name, shape);
    assert!(tensor.dense_dtype().is_none(), "{name} is {tensor:?}");
    tensor.bytes().to_vec()
}

#[test]
fn every_quantized_kind_reads_back_equal() {
    for kind in QUANTIZED {
        let file = GgufFile::new("qwen2", kind);
        let source = open(&file);
        let down = quantized_bytes(&source, "model.layers.0.mlp.down_proj.weight", &[HIDDEN, 256]);
        let written = file.stored("blk.0.ffn_down.weight");
        assert_eq!(down, *written.data().unwrap(), "{kind:?}");
        let query = quantized_bytes(
            &source,
            "model.layers.0.self_attn.q_proj.weight",
            &[HEADS * HEAD_DIM, HIDDEN],
        );
        assert_eq!(query, *file.stored("blk.0.attn_q.weight").data().unwrap(), "{kind:?}");
    }
}

#[test]
fn unquantized_kinds_are_dense_and_read_back_equal() {
    for kind in [GgmlDType::F32, GgmlDType::F16, GgmlDType::BF16] {
        let file = GgufFile::new("qwen3", kind);
        let source = open(&file);
        let up = dense(&source, "model.layers.0.mlp.up_proj.weight", &[256, HIDDEN]);
        let expected = file.stored("blk.0.ffn_up.weight").dequantize(&Device::Cpu).unwrap();
        assert_eq!(format!("{:?}", up.dtype()), format!("{kind:?}"));
        assert_eq!(checkpoint::values(&up), checkpoint::values(&expected), "{kind:?}");
    }
}

#[test]
fn version_3_reads_as_version_2() {
    let mut bytes = GgufFile::new("llama", GgmlDType::Q8_0).bytes();
    assert_eq!(bytes[4], 2);
    bytes[4] = 3;
    assert_eq!(open_bytes(&bytes).unwrap().config["hidden_size"], HIDDEN);
}

/// Rows in the order that conversion to GGUF gives them, by its definition.
fn interleave(rows: &Tensor, heads: usize) -> Tensor {
    let mut shape = rows.dims().to_vec();
    let head_rows = shape[0] / heads;
    let original = shape.clone();
    shape.splice(0..1, [heads, 2, head_rows / 2]);
    let swapped = rows.reshape(shape).unwrap().transpose(1, 2).unwrap().contiguous().unwrap();
    swapped.reshape(original).unwrap()
}

#[test]
fn llama_queries_and_keys_come_back_in_hugging_face_order() {
    for kind in [GgmlDType::F32, GgmlDType::Q8_0, GgmlDType::Q4K] {
        let mut file = GgufFile::new("llama", kind);
        for (name, heads) in [("attn_q", HEADS), ("attn_k", KEY_HEADS)] {
            let original = gguf_file::noise(heads as u32, &[heads * HEAD_DIM, HIDDEN]);
            let gguf = format!("blk.0.{name}.weight");
            file.add(&gguf, original.clone(), kind);
            let expected = file.stored(&gguf);
            file.add(&gguf, interleave(&original, heads), kind);
            let source = open(&file);
            let hugging_face =
                format!("model.layers.0.self_attn.{}_proj.weight", &name["attn_".len()..]);
            let shape = [heads * HEAD_DIM, HIDDEN];
            if kind == GgmlDType::F32 {
                let read = dense(&source, &hugging_face, &shape);
                assert_eq!(checkpoint::values(&read), checkpoint::values(&original), "{name}");
            } else {
                let read = quantized_bytes(&source, &hugging_face, &shape);
                assert_eq!(read, *expected.data().unwrap(), "{name} {kind:?}");
            }
        }
    }
}

#[test]
fn llama_query_bias_comes_back_in_hugging_face_order() {
    let mut file = GgufFile::new("llama", GgmlDType::F32);
    let bias = gguf_file::noise(9, &[HEADS * HEAD_DIM]);
    file.add("blk.0.attn_q.bias", interleave(&bias, HEADS), GgmlDType::F32);
    let source = open(&file);
    let read = dense(&source, "model.layers.0.self_attn.q_proj.bias", &[HEADS * HEAD_DIM]);
    assert_eq!(checkpoint::values(&read), checkpoint::values(&bias));
    assert_eq!(source.config["attention_bias"], true);
}

#[test]
fn metadata_becomes_a_configuration() {
    let source = open(&GgufFile::new("qwen3", GgmlDType::Q8_0));
    let expected = serde_json::json!({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 6,
        "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "hidden_act": "silu",
        "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 500_000.0,
        "partial_rotary_factor": 1.0, "sliding_window": null,
        "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false,
        "eos_token_id": [3, 4],
    });
    assert_eq!(source.config, expected);
    let generation = serde_json::json!({"eos_token_id": [3, 4]});
    assert_eq!(source.generation_config, Some(generation));
    assert_eq!(source.chat_template.as_deref(), Some("{{ messages }}"));
    assert_eq!(source.name, "tiny.Q8_0");
}

#[test]
fn an_output_tensor_unties_the_embeddings() {
    let mut file = GgufFile::new("llama", GgmlDType::Q8_0);
    file.add("output.weight", gguf_file::noise(7, &[6, HIDDEN]), GgmlDType::Q6K);
    let source = open(&file);
    assert_eq!(source.config["tie_word_embeddings"], false);
    assert_eq!(
        quantized_bytes(&source, "lm_head.weight", &[6, HIDDEN]),
        *file.stored("output.weight").data().unwrap()
    );
}

#[test]
fn recommended_sampling_becomes_the_generation_configuration() {
    let mut file = GgufFile::new("qwen2", GgmlDType::F16);
    file.set("general.sampling.temp", Value::F32(0.7));
    file.set("general.sampling.top_k", Value::I32(20));
    file.set("general.sampling.top_p", Value::F32(0.8));
    file.set("general.sampling.penalty_repeat", Value::F32(1.05));
    file.set("tokenizer.ggml.bos_token_id", Value::U32(3));
    let expected = serde_json::json!({"eos_token_id": [3, 4], "bos_token_id": 3, "top_k": 20,
        "temperature": 0.7, "top_p": 0.8, "repetition_penalty": 1.05});
    assert_eq!(open(&file).generation_config, Some(expected));
}

#[test]
fn the_vocabulary_is_plain_data() {
    let mut file = GgufFile::new("qwen2", GgmlDType::F16);
    file.set("tokenizer.ggml.padding_token_id", Value::U32(600));
    file.set("tokenizer.ggml.scores", Value::Array(vec![Value::F32(-0.5); 6]));
    let vocabulary = open(&file).gguf_vocabulary.unwrap();
    assert_eq!(vocabulary.model, "gpt2");
    assert_eq!(vocabulary.pre_tokenizer.as_deref(), Some("qwen2"));
    assert_eq!(vocabulary.tokens[2], "ab");
    assert_eq!(vocabulary.scores, [-0.5; 6]);
    assert_eq!(vocabulary.token_types, [1, 1, 1, 3, 3, 3]);
    assert_eq!(vocabulary.merges, ["a b"]);
    assert_eq!(vocabulary.eos_token_id, Some(4));
    assert_eq!(vocabulary.bos_token_id, None);
    assert_eq!(vocabulary.padding_token_id, None, "600 is no token");
    assert_eq!(vocabulary.add_bos_token, Some(false));
    assert_eq!(vocabulary.add_space_prefix, None);
    assert_eq!(vocabulary.end_token_ids(), [3, 4]);
}

fn rope_scaling(change: impl Fn(&mut GgufFile)) -> serde_json::Value {
    let mut file = GgufFile::new("llama", GgmlDType::F16);
    change(&mut file);
    open(&file).config["rope_scaling"].clone()
}

fn set_scaling(file: &mut GgufFile, kind: &str, factor: f32) {
    file.set("llama.rope.scaling.type", Value::String(kind.to_owned()));
    file.set("llama.rope.scaling.factor", Value::F32(factor));
}

#[test]
fn rope_scaling_is_expressed_in_the_configuration() {
    assert_eq!(rope_scaling(|_| ()), serde_json::Value::Null);
    assert_eq!(rope_scaling(|file| set_scaling(file, "none", 1.0)), serde_json::Value::Null);
    let linear = rope_scaling(|file| set_scaling(file, "linear", 4.0));
    assert_eq!(linear, serde_json::json!({"rope_type": "linear", "factor": 4.0}));
    let old = rope_scaling(|file| file.set("llama.rope.scale_linear", Value::F32(2.0)));
    assert_eq!(old, serde_json::json!({"rope_type": "linear", "factor": 2.0}));
    let yarn = rope_scaling(|file| {
        set_scaling(file, "yarn", 4.0);
        file.set("llama.rope.scaling.original_context_length", Value::U32(32));
    });
    let expected = serde_json::json!({"rope_type": "yarn", "factor": 4.0,
        "original_max_position_embeddings": 32});
    assert_eq!(yarn, expected);
    let factors = |file: &mut GgufFile| {
        let factors = Tensor::new(&[1.0f32, 1.0, 2.5, 8.0], &Device::Cpu).unwrap();
        file.add("rope_freqs.weight", factors, GgmlDType::F32);
    };
    let expected = serde_json::json!({"rope_type": "factors", "factors": [1.0, 1.0, 2.5, 8.0]});
    assert_eq!(rope_scaling(factors), expected);
    let both = rope_scaling(|file| {
        factors(file);
        set_scaling(file, "linear", 2.0);
    });
    let expected = serde_json::json!({"rope_type": "factors", "factors": [2.0, 2.0, 5.0, 16.0]});
    assert_eq!(both, expected);
}

#[test]
fn a_sliding_window_makes_a_llama_a_mistral() {
    let mut file = GgufFile::new("llama", GgmlDType::F16);
    file.set("llama.attention.sliding_window", Value::U32(64));
    let config = open(&file).config;
    assert_eq!(config["architectures"][0], "MistralForCausalLM");
    assert_eq!(config["sliding_window"], 64);
}

#[test]
fn a_model_in_several_files_is_the_one_in_one_file() {
    let whole = GgufFile::new("llama", GgmlDType::Q8_0);
    let folder = tempfile::tempdir().unwrap();
    let path = |part: usize| folder.path().join(format!("m-{part:05}-of-00003.gguf"));
    // The metadata alone, then the tensors in two files.
    let (first, second): (Vec<_>, Vec<_>) =
        whole.tensors.clone().into_iter().enumerate().partition(|(at, _)| at % 2 == 0);
    let tensors = [Vec::new(), first, second];
    for (part, tensors) in tensors.into_iter().enumerate() {
        let mut file = GgufFile {
            metadata: if part == 0 { whole.metadata.clone() } else { BTreeMap::new() },
            tensors: tensors.into_iter().map(|(_, tensor)| tensor).collect(),
        };
        file.set("split.no", Value::U16(u16::try_from(part).unwrap()));
        file.set("split.count", Value::U16(3));
        file.write(&path(part + 1));
    }
    let expected = open(&whole);
    for reference in [path(1), path(3), folder.path().to_owned()] {
        let source = source_of(&reference).unwrap();
        assert_eq!(source.config, expected.config);
        assert_eq!(source.weight_bytes(), expected.weight_bytes());
        for name in ["model.embed_tokens.weight", "model.layers.0.mlp.down_proj.weight"] {
            let bytes = |source: &ModelSource| {
                let weights = source.weights(&Device::Cpu);
                let shape = if name.contains("embed") {
                    [VOCABULARY, HIDDEN]
                } else {
                    [HIDDEN, FEED_FORWARD]
                };
                weights.stored(name, &shape).unwrap().bytes().to_vec()
            };
            assert_eq!(bytes(&source), bytes(&expected));
        }
    }
    std::fs::copy(path(2), path(3)).unwrap();
    let error = source_of(&path(1)).unwrap_err().to_string();
    assert!(error.contains("part 2 of a model in 3 files, but by its name part 3"), "{error}");
    std::fs::remove_file(path(3)).unwrap();
    let error = source_of(&path(1)).unwrap_err().to_string();
    assert!(error.contains("m-00003-of-00003.gguf"), "{error}");
}

#[test]
fn head_counts_per_layer_are_accepted_when_equal() {
    let mut file = GgufFile::new("llama", GgmlDType::F16);
    file.set("llama.attention.head_count_kv", Value::Array(vec![Value::U32(2), Value::U32(2)]));
    assert_eq!(open(&file).config["num_key_value_heads"], 2);
    file.set("llama.attention.head_count_kv", Value::Array(vec![Value::U32(2), Value::U32(1)]));
    assert!(refused(&file).contains("differs from layer to layer"));
}

#[test]
fn metadata_that_no_model_here_honours_is_refused() {
    let text = |text: &str| Value::String(text.to_owned());
    let sections = Value::Array(vec![Value::I32(0), Value::I32(4)]);
    let cases = [
        ("general.architecture", text("rwkv7"), "`rwkv7` is not supported"),
        ("general.type", text("adapter"), "LoRA adapter"),
        ("split.count", Value::U16(3), "part 1 of a model in 3 files, but by its name part 1 of 1"),
        ("llama.expert_count", Value::U32(8), "`llama.expert_used_count` is missing"),
        ("llama.expert_shared_count", Value::U32(1), "`llama.expert_shared_count` is set"),
        ("llama.rope.dimension_sections", sections, "`llama.rope.dimension_sections` is set"),
        ("llama.rope.dimension_count", Value::U32(10), "10 of the 8 dimensions"),
        ("llama.logit_scale", Value::F32(0.5), "`llama.logit_scale` is set"),
        ("llama.rope.scaling.type", text("longrope"), "`longrope` without rope_factors_long"),
        ("llama.rope.scaling.type", text("new"), "`new` is not supported"),
        ("llama.rope.scaling.type", text("yarn"), "original_context_length"),
        ("llama.attention.head_count", Value::U32(0), "is 0"),
        ("llama.block_count", Value::U64(1 << 60), "11 tensors are too few for 115"),
        ("llama.attention.head_count", Value::U32(3), "3 query heads"),
        ("llama.attention.head_count", text("4"), "is a string, expected a non-negative integer"),
        ("llama.attention.key_length", Value::U32(7), "7 key"),
        ("llama.attention.key_length", Value::U32(16), "16 key and 8 value"),
        ("llama.embedding_length", Value::I32(-1), "expected a non-negative integer"),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(f32::NAN), "expected a finite"),
        ("tokenizer.ggml.tokens", gguf_file::texts(&[]), "no vocabulary"),
        ("tokenizer.ggml.tokens", gguf_file::texts(&["x"; 7]), "6 values, expected 7"),
        ("tokenizer.ggml.token_type", Value::Array(vec![Value::I32(1)]), "1 values, expected 6"),
        ("tokenizer.ggml.merges", text("a b"), "expected an array of strings"),
        ("general.alignment", Value::U32(0), "general.alignment is 0"),
        ("general.alignment", Value::U32(48), "general.alignment is 48"),
    ];
    for (key, value, expected) in cases {
        let mut file = GgufFile::new("llama", GgmlDType::F16);
        file.set(key, value);
        let message = refused(&file);
        assert!(message.contains(expected), "{key}: {message}");
    }
    for key in ["llama.block_count", "tokenizer.ggml.model", "general.architecture"] {
        let mut file = GgufFile::new("llama", GgmlDType::F16);
        file.metadata.remove(key);
        assert!(refused(&file).contains(&format!("`{key}` is missing")), "{key}");
    }
}

#[test]
fn a_model_that_looks_both_ways_says_so() {
    let mut file = GgufFile::new("llama", GgmlDType::F16);
    assert!(open(&file).config.get("is_causal").is_none());
    file.set("llama.attention.causal", Value::Bool(false));
    assert_eq!(open(&file).config["is_causal"], false);
}

#[test]
fn pooling_that_the_format_does_not_know_is_refused() {
    let mut file = GgufFile::new("llama", GgmlDType::F16);
    assert!(open(&file).sentence_modules.is_none());
    for (kind, pools) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
        file.set("llama.pooling_type", Value::U32(kind));
        assert_eq!(open(&file).sentence_modules.is_some(), pools, "{kind}");
    }
    file.set("llama.pooling_type", Value::U32(5));
    assert!(refused(&file).contains("`llama.pooling_type` is 5, expected 0 to 4"));
}

/// A file that declares one tensor of a kind, its innermost dimension first.
fn one_tensor(kind: u32, dims: &[u64], data: usize) -> Vec<u8> {
    let name = b"token_embd.weight";
    let mut file = b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend((name.len() as u64).to_le_bytes());
    file.extend(name);
    file.extend(u32::try_from(dims.len()).unwrap().to_le_bytes());
    file.extend(dims.iter().flat_map(|size| size.to_le_bytes()));
    file.extend(kind.to_le_bytes());
    file.extend(0u64.to_le_bytes());
    file.resize(file.len().next_multiple_of(32) + data, 0xff);
    file
}

#[test]
fn blocks_of_codes_that_do_not_fit_are_refused() {
    // Number, elements and bytes of a block: the i-quants, the ternary kinds, MXFP4 and NVFP4.
    let kinds = [
        (16, 256, 66),
        (17, 256, 74),
        (18, 256, 98),
        (19, 256, 50),
        (20, 32, 18),
        (21, 256, 110),
        (22, 256, 82),
        (23, 256, 136),
        (29, 256, 56),
        (34, 256, 54),
        (35, 256, 66),
        (39, 32, 17),
        (40, 64, 36),
    ];
    for (kind, elements, bytes) in kinds {
        let whole = [elements as u64 * 2, 3];
        let size = 6 * bytes;
        let refused = |dims: &[u64], data| refused_bytes(&one_tensor(kind, dims, data));
        let short = refused(&whole, size - 1);
        let expected = format!("needs {size} bytes at data offset 0, the file has {}", size - 1);
        assert!(short.contains(&expected), "{kind}: {short}");
        let odd = refused(&[elements as u64 + 1, 2], 4096);
        assert!(odd.contains(&format!("expected a multiple of {elements}")), "{kind}: {odd}");
        for dims in [[elements as u64, u64::MAX / 8], [1 << 40, 1 << 40]] {
            let large = refused(&dims, 64);
            let known = ["which no file can hold", "the file has 64"];
            assert!(known.iter().any(|known| large.contains(known)), "{kind}: {large}");
        }
        // As many bytes as it needs are no error of the tensor's, whatever codes they hold.
        let fits = refused(&whole, size);
        assert!(fits.contains("general.architecture"), "{kind}: {fits}");
    }
    for unknown in [4, 31, 36, 41, 99] {
        let message = refused_bytes(&one_tensor(unknown, &[256], 4096));
        assert!(message.contains("is not supported; supported are"), "{unknown}: {message}");
    }
}

#[test]
fn tensors_that_do_not_belong_are_refused() {
    let mut file = GgufFile::new("qwen2", GgmlDType::F16);
    file.add("blk.0.ffn_gate_exps.weight", gguf_file::noise(1, &[8, 8]), GgmlDType::F16);
    assert!(refused(&file).contains("`blk.0.ffn_gate_exps.weight` is no part of a `qwen2` model"));
    let mut file = GgufFile::new("llama", GgmlDType::F16);
    file.add("blk.0.attn_k.weight", gguf_file::noise(1, &[12, HIDDEN]), GgmlDType::F16);
    assert!(refused(&file).contains("12 rows, expected 2 heads of 8 rows"));
    let mut file = GgufFile::new("llama", GgmlDType::F16);
    file.add("rope_freqs.weight", gguf_file::noise(1, &[4]), GgmlDType::F32);
    assert!(refused(&file).contains("expected more than 0"));
    file.add("rope_freqs.weight", gguf_file::noise(1, &[5]), GgmlDType::F32);
    assert!(refused(&file).contains("has 5 factors, expected 4"));
    let mut file = GgufFile::new("llama", GgmlDType::F16);
    file.tensors.remove("token_embd.weight");
    assert!(refused(&file).contains("`token_embd.weight` is missing"));
    file.add("token_embd.weight", gguf_file::noise(1, &[5, HIDDEN]), GgmlDType::F16);
    assert!(refused(&file).contains("6 tokens, `token_embd.weight` has 5 rows"));
}

#[test]
fn other_files_are_recognized() {
    let big_endian = b"GGUF\x00\x00\x00\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    for (bytes, expected) in [
        (&b"GGUF"[..], "4 bytes are needed at byte 4"),
        (b"GG", "too short"),
        (b"GGUF\x01\0\0\0", "version 1"),
        (b"GGUF\x09\0\0\0", "version 9"),
        (big_endian, "big-endian"),
        (b"tjgg....", "old GGML"),
        (b"PK\x03\x04", "expected `GGUF`"),
        (b"<html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\nsize 7\n", "git-lfs pointer"),
    ] {
        let message = refused_bytes(bytes);
        assert!(message.contains(expected), "{message}");
    }
}

/// Position of the first occurrence of `text` in `bytes`.
fn find(bytes: &[u8], text: &str) -> usize {
    bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap()
}

#[test]
fn hostile_counts_and_lengths_are_refused_without_allocation() {
    let whole = GgufFile::new("llama", GgmlDType::F16).bytes();
    let patched = |at: usize, bytes: &[u8]| {
        let mut file = whole.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        refused_bytes(&file)
    };
    let huge = u64::MAX.to_le_bytes();
    assert!(patched(8, &huge).contains("18446744073709551615 tensors"));
    assert!(patched(16, &(1u64 << 40).to_le_bytes()).contains("metadata entries need"));
    assert!(patched(24, &huge).contains("metadata key 0"));
    // An array's length follows its element type; a tensor's dimensions follow their number.
    let tokens = find(&whole, "tokenizer.ggml.tokens") + "tokenizer.ggml.tokens".len();
    assert!(patched(tokens + 8, &huge).contains("tokenizer.ggml.tokens"));
    let name = find(&whole, "blk.0.ffn_up.weight") + "blk.0.ffn_up.weight".len();
    assert!(patched(name, &9u32.to_le_bytes()).contains("has 9 dimensions"));
    assert!(patched(name + 4, &huge).contains("which no file can hold"));
    assert!(patched(name + 4, &0u64.to_le_bytes()).contains("no possible size"));
    let kind = name + 4 + 16;
    assert!(patched(kind, &24u32.to_le_bytes()).contains("`blk.0.ffn_up.weight` has the kind I8"));
    // A row is no whole number of blocks of 256, or its blocks end behind the file.
    let rows = (name + 4, 255u64.to_le_bytes());
    let coded = |number: u32| {
        let mut bytes = whole.clone();
        bytes[rows.0..rows.0 + 8].copy_from_slice(&rows.1);
        bytes[kind..kind + 4].copy_from_slice(&number.to_le_bytes());
        refused_bytes(&bytes)
    };
    assert!(coded(23).contains("rows of 255 elements, expected a multiple of 256"));
    assert!(coded(20).contains("rows of 255 elements, expected a multiple of 32"));
    assert!(patched(kind, &99u32.to_le_bytes()).contains("number 99"));
    let offset = kind + 4;
    assert!(patched(offset, &huge).contains("not aligned to 32"));
    assert!(patched(offset, &(u64::MAX - 31).to_le_bytes()).contains("truncated"));
    assert!(patched(offset, &0u64.to_le_bytes()).contains("overlap"));
}

#[test]
fn a_duplicate_name_is_refused() {
    let mut bytes = GgufFile::new("llama", GgmlDType::F16).bytes();
    let at = find(&bytes, "blk.0.attn_k.weight");
    bytes[at..at + 19].copy_from_slice(b"blk.0.attn_v.weight");
    assert!(refused_bytes(&bytes).contains("`blk.0.attn_v.weight` appears twice"));
}

#[test]
fn truncated_data_names_the_tensor() {
    let whole = GgufFile::new("llama", GgmlDType::F16).bytes();
    let message = refused_bytes(&whole[..whole.len() - 4096]);
    assert!(message.contains("tensor `") && message.contains("truncated"), "{message}");
}

#[test]
fn scales_and_norms_that_are_not_finite_are_refused() {
    for kind in QUANTIZED {
        let file = GgufFile::new("qwen2", kind);
        let mut bytes = file.bytes();
        let written = file.stored("blk.0.ffn_up.weight").data().unwrap().into_owned();
        let at = bytes.windows(64).position(|window| window == &written[..64]).unwrap();
        // Bytes of all ones make every scale a NaN, wherever the block keeps it.
        let block = 3 * kind.type_size();
        bytes[at + block..at + block + kind.type_size()].fill(0xff);
        let source = open_bytes(&bytes).unwrap();
        let weights = source.weights(&Device::Cpu);
        let name = "model.layers.0.mlp.up_proj.weight";
        let message = weights.stored(name, &[256, HIDDEN]).unwrap_err().to_string();
        assert!(message.contains("block 3 has the scale NaN"), "{kind:?}: {message}");
        assert!(message.contains("blk.0.ffn_up.weight"), "{message}");
    }
    let mut file = GgufFile::new("qwen2", GgmlDType::F16);
    let norm = Tensor::full(f32::INFINITY, &[HIDDEN], &Device::Cpu).unwrap();
    file.add("output_norm.weight", norm, GgmlDType::F32);
    let source = open(&file);
    let error = source.weights(&Device::Cpu).stored("model.norm.weight", &[HIDDEN]).unwrap_err();
    assert!(error.to_string().contains("element 0 is inf"), "{error}");
}

#[test]
fn a_folder_with_one_gguf_file_is_that_file() {
    let folder = tempfile::tempdir().unwrap();
    let options = HubOptions::offline(folder.path());
    let file = GgufFile::new("qwen2", GgmlDType::Q8_0);
    file.write(&folder.path().join("a.gguf"));
    let reference = ModelRef::parse(folder.path().to_str().unwrap(), None).unwrap();
    let source = ModelSource::open(&reference, &options).unwrap();
    assert_eq!(source.config["model_type"], "qwen2");
    file.write(&folder.path().join("b.gguf"));
    let message = ModelSource::open(&reference, &options).unwrap_err().to_string();
    assert!(message.contains("give one of them: a.gguf, b.gguf"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any truncated file is refused, any damaged byte is refused or still readable; no panic.
    #[test]
    fn damaged_files_never_panic(cut: usize, at in 0usize..2500, value: u8) {
        static WHOLE: LazyLock<Vec<u8>> =
            LazyLock::new(|| GgufFile::new("llama", GgmlDType::Q8_0).bytes());
        let whole = &*WHOLE;
        let cut = cut % (whole.len() - 64);
        prop_assert!(open_bytes(&whole[..cut]).is_err());
        let mut damaged = whole.clone();
        damaged[at] = value;
        if let Ok(source) = open_bytes(&damaged) {
            let weights = source.weights(&Device::Cpu);
            let _ = weights.stored("model.layers.0.self_attn.q_proj.weight", &[32, HIDDEN]);
            let _ = weights.stored("model.embed_tokens.weight", &[6, HIDDEN]);
        }
    }
}
