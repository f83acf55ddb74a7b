//! Folders that are written as GGUF files: the file gives the logits of the folder, or there is none; and it is the
//! file that llama.cpp's own converter makes of the folder, as far as files say what a model is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, Value};
use sconce::app::convert::convert;
use sconce::config::WeightKind;
use sconce::models::config::HfConfig;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;
use serde_json::{Value as Json, json};

use super::gguf_files::{
    Changes, all_changes, at_most, converted, logits, model_of, relative_error,
};
use super::{MODELS, device, folder};

/// A byte-level tokenizer with few tokens, for checkpoints without one.
pub(crate) fn small_tokenizer() -> Json {
    let mut vocab: Vec<String> = (b'!'..=b'~').map(|byte| char::from(byte).to_string()).collect();
    vocab.extend(["Ġ", "Ċ", "th", "Ġth", "the"].map(str::to_owned));
    let end = vocab.len();
    let vocab: serde_json::Map<_, _> =
        vocab.into_iter().enumerate().map(|(id, token)| (token, id.into())).collect();
    json!({
        "version": "1.0",
        "added_tokens": [{
            "id": end, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true,
        }],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": vocab, "merges": ["t h", "Ġ th", "th e"],
        },
    })
}

/// A copy of a fixture with changes and with a tokenizer.
fn prepared(name: &str, changes: &Changes, into: &Path) -> PathBuf {
    let copy = into.join(name.replace('/', "_"));
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(folder(name)).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let text = std::fs::read_to_string(copy.join("config.json")).unwrap();
    let mut config: Json = serde_json::from_str(&text).unwrap();
    config.as_object_mut().unwrap().extend(changes.config.clone());
    if let Some(text_config) = config.get_mut("text_config") {
        text_config.as_object_mut().unwrap().extend(changes.text_config.clone());
    }
    std::fs::write(copy.join("config.json"), config.to_string()).unwrap();
    if !changes.without.is_empty() {
        let file = copy.join("model.safetensors");
        let mut tensors = candle_core::safetensors::load(&file, &Device::Cpu).unwrap();
        tensors.retain(|name, _| !changes.without.iter().any(|start| name.starts_with(start)));
        candle_core::safetensors::save(&tensors, &file).unwrap();
    }
    std::fs::write(copy.join("tokenizer.json"), small_tokenizer().to_string()).unwrap();
    copy
}

pub(crate) fn open(reference: &ModelRef, folder: &Path) -> ModelSource {
    ModelSource::open(reference, &HubOptions::offline(folder)).unwrap()
}

fn files_in(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    names.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

/// Every fixture, with and without the changes that make one of those that the converter knows.
fn cases() -> Vec<(String, Changes)> {
    let plain = MODELS.iter().map(|name| ((*name).to_owned(), Changes::default()));
    let changed = all_changes().into_iter().filter(|(name, changes)| {
        !(name.starts_with("..")
            || changes.of.is_some()
            || changes.config.is_empty() && changes.text_config.is_empty())
    });
    plain.chain(changed).collect()
}

/// Fixtures as they are whose folders no file can say, and what the reason names.
const REFUSED: [(&str, &str); 107] = [
    ("apertus1p5", "no GGUF architecture"),
    ("aria", "no GGUF architecture"),
    ("axk1", "no GGUF architecture"),
    ("axk2", "no GGUF architecture"),
    ("bailing", "no GGUF architecture"),
    ("bailing_hybrid", "such recurrent layers"),
    ("bailing_hybrid_groups", "such recurrent layers"),
    ("bamba", "model.final_layernorm.weight"),
    ("beam", "no GGUF architecture"),
    ("bert", "no GGUF architecture"),
    ("biogpt", "no GGUF architecture"),
    ("bitnet", "activation"),
    ("chatglm", "no GGUF architecture"),
    ("codegen", "no GGUF architecture"),
    ("cohere2_moe_sigmoid", "scale"),
    ("cohere_compass", "no GGUF architecture"),
    ("cohere_compass_conditional", "no GGUF architecture"),
    ("ctrl", "no GGUF architecture"),
    ("cwm", "no GGUF architecture"),
    ("dbrx", "no GGUF architecture"),
    ("diffllama", "no GGUF architecture"),
    ("doge", "no GGUF architecture"),
    ("dory", "no GGUF architecture"),
    ("dots3_note", "no GGUF architecture"),
    ("electra", "no GGUF architecture"),
    ("emu3", "no GGUF architecture"),
    ("exaone4_5", "no GGUF architecture"),
    ("falcon_h1", "mlp_scale"),
    ("falcon_mamba", "eps"),
    ("falcon_serial", "transformer.h.0.input_layernorm.bias"),
    ("flex_olmo", "no GGUF architecture"),
    ("flint", "no GGUF architecture"),
    ("fuyu", "no GGUF architecture"),
    ("gemma2", "scale"),
    ("gemma3", "scale"),
    ("gemma3_conditional", "scale"),
    ("gemma3n", "embedding_length_per_layer_input"),
    ("gemma4_conditional", "several sizes"),
    ("gemma4_experts", "several sizes"),
    ("gemma4_shared", "several sizes"),
    ("gemma4_unified", "several sizes"),
    ("glm5_next_sparse", "no GGUF architecture"),
    ("gpt2", "scale"),
    ("gpt_big_code_heads", "num_kv_heads"),
    ("gpt_neo", "no GGUF architecture"),
    ("gpt_neox_japanese", "no GGUF architecture"),
    ("gpt_oss", "limit"),
    ("gptj", "no GGUF architecture"),
    ("granite_swa", "its layers"),
    ("helium", "no GGUF architecture"),
    ("hrm_text", "no GGUF architecture"),
    ("hy_v4", "hyper_connection.count"),
    ("hyperclovax", "no GGUF architecture"),
    ("internlm", "no GGUF architecture"),
    ("internlm2", "no GGUF architecture"),
    ("iquest_coder", "no GGUF architecture"),
    ("jetmoe", "no GGUF architecture"),
    ("kimi_k2_5", "no GGUF architecture"),
    ("kimi_linear", "has no place"),
    ("kolibri1", "no GGUF architecture"),
    ("lara_mini", "no GGUF architecture"),
    ("lfm3", "no GGUF architecture"),
    ("lfm3_vl", "no GGUF architecture"),
    ("llama4", "chunk"),
    ("llama4_conditional", "chunk"),
    ("longcat_flash", "no GGUF architecture"),
    ("mamba2", "step_limits"),
    ("mimo", "no GGUF architecture"),
    ("minimax_m3", "no GGUF architecture"),
    ("minimax_m3_conditional", "has no place"),
    ("minimax_m3_sparse", "no GGUF architecture"),
    ("minicpm3", "residual_scale"),
    ("minimax", "has no place"),
    ("ministral", "no GGUF architecture"),
    ("mllama", "no GGUF architecture"),
    ("modern_bert_decoder", "no GGUF architecture"),
    ("muse_glimmer", "no GGUF architecture"),
    ("nanochat", "no GGUF architecture"),
    ("nemotron_h_omni", "no GGUF architecture"),
    ("olmo_hybrid", "no GGUF architecture"),
    ("olmo_hybrid_rope", "no GGUF architecture"),
    ("openai_gpt", "no GGUF architecture"),
    ("opt", "no GGUF architecture"),
    ("persimmon", "no GGUF architecture"),
    ("phi4_multimodal", "no GGUF architecture"),
    ("phi_norms", "model.layers.0.self_attn.k_layernorm.bias"),
    ("phimoe", "jitter"),
    ("qwen", "intermediate_size"),
    ("qwen2_5_omni", "no GGUF architecture"),
    ("qwen2_5_omni_thinker", "no GGUF architecture"),
    ("qwen2_moe", "model.layers.1.mlp.down_proj.weight"),
    ("qwen3_omni", "no GGUF architecture"),
    ("qwen3_omni_thinker", "no GGUF architecture"),
    ("recurrent_gemma", "no GGUF architecture"),
    ("roberta", "no GGUF architecture"),
    ("roformer", "no GGUF architecture"),
    ("sarvam_mla", "no GGUF architecture"),
    ("sarvam_moe", "no GGUF architecture"),
    ("smollm3", "rotated by"),
    ("stablelm_parallel", "model.layers.0.self_attn.k_layernorm.norms.0.weight"),
    ("step3p7", "has no place"),
    ("vault_gemma", "no GGUF architecture"),
    ("xglm", "no GGUF architecture"),
    ("zamba", "no GGUF architecture"),
    ("zamba2", "no GGUF architecture"),
    ("zamba2_tied", "no GGUF architecture"),
    ("zaya", "no GGUF architecture"),
];

#[test]
fn written_files_give_the_logits_of_their_folders() {
    let (mut unexpected, mut wrong, mut written) = (Vec::new(), Vec::new(), Vec::new());
    for (name, changes) in cases() {
        let plain = changes.config.is_empty() && changes.text_config.is_empty();
        let temporary = tempfile::tempdir().unwrap();
        let copy = prepared(&name, &changes, temporary.path());
        let out = temporary.path().join("out");
        std::fs::create_dir(&out).unwrap();
        let file = out.join("model.gguf");
        if let Err(error) = convert(&copy, &file, WeightKind::Bf16, &mut |_, _| {}) {
            assert!(files_in(&out).is_empty(), "{name}");
            let reason = format!("{error:#}");
            if !REFUSED.iter().any(|(known, part)| *known == name && reason.contains(part)) {
                unexpected.push(format!("{name}: {reason}"));
            }
            continue;
        }
        if plain && REFUSED.iter().any(|(known, _)| *known == name) {
            unexpected.push(format!("{name} is written"));
        }
        assert_eq!(files_in(&out), ["model.gguf"], "{name}");
        let ours = logits(model_of(&open(&ModelRef::GgufFile(file), temporary.path())));
        let theirs = logits(model_of(&open(&ModelRef::Folder(copy), temporary.path())));
        let error = relative_error(&ours, &theirs);
        // Divisors of frequencies instead of the rule that makes them.
        let bound = if name.starts_with("llama3") { 1e-5 } else { 0.0 };
        if !at_most(error, bound) {
            wrong.push((name.clone(), error));
        }
        written.push(name);
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(written.len() > 100, "{}", written.len());
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

/// The logits of a folder whose matrices are rounded as they are loaded.
fn rounded(copy: &Path, kind: WeightKind) -> Vec<f32> {
    let source = open(&ModelRef::Folder(copy.to_owned()), copy);
    let config = HfConfig::from_value(&source.config).unwrap();
    let weights = source.weights(device()).rounded_to(Some(kind.ggml()));
    logits(sconce::models::load(&config, &weights).unwrap())
}

#[test]
fn rounded_files_give_the_logits_of_folders_that_are_rounded_as_they_are_loaded() {
    let mut wrong = Vec::new();
    for name in
        ["llama2", "qwen3", "mixtral", "qwen3_moe", "phi3", "olmo2", "granite", "granite_moe"]
    {
        for kind in [WeightKind::Q8_0, WeightKind::Q4_0, WeightKind::Q4K, WeightKind::F16] {
            let temporary = tempfile::tempdir().unwrap();
            let copy = prepared(name, &Changes::default(), temporary.path());
            let file = temporary.path().join("model.gguf");
            convert(&copy, &file, kind, &mut |_, _| {}).unwrap();
            let ours = logits(model_of(&open(&ModelRef::GgufFile(file), temporary.path())));
            let error = relative_error(&ours, &rounded(&copy, kind));
            if !at_most(error, 0.0) {
                wrong.push((name, kind, error));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// The tensors of a file: kind, shape and bytes.
fn tensors(bytes: &[u8]) -> BTreeMap<String, (String, Vec<usize>, Vec<u8>)> {
    let content = Content::read(&mut std::io::Cursor::new(bytes)).unwrap();
    let start = usize::try_from(content.tensor_data_offset).unwrap();
    let one = |(name, info): (&String, &candle_core::quantized::gguf_file::TensorInfo)| {
        let kind = info.ggml_dtype;
        let size = info.shape.elem_count() / kind.block_size() * kind.type_size();
        let first = start + usize::try_from(info.offset).unwrap();
        let bytes = bytes[first..first + size].to_vec();
        (name.clone(), (format!("{kind:?}"), info.shape.dims().to_vec(), bytes))
    };
    content.tensor_infos.iter().map(one).collect()
}

fn metadata(bytes: &[u8]) -> BTreeMap<String, String> {
    let content = Content::read(&mut std::io::Cursor::new(bytes)).unwrap();
    let said = |value: &Value| format!("{value:?}");
    content.metadata.iter().map(|(key, value)| (key.clone(), said(value))).collect()
}

/// What the converter says besides, by the ends of keys: it is the reader's default, or of something that there is
/// none of in these models (a scaling of type `none`, groups of which there is one, the epsilon of other norms).
const UNSAID: [&str; 22] = [
    "attention.head_count",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "expert_count",
    "expert_group_count",
    "expert_group_used_count",
    "expert_shared_feed_forward_length",
    "expert_used_count",
    "expert_weights_scale",
    "feed_forward_length",
    "full_attention_interval",
    "nextn_predict_layers",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
];
/// What the converter leaves to the reader's defaults.
const SAID_BESIDES: [&str; 17] = [
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "expert_feed_forward_length",
    "expert_gating_func",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_weights_norm",
    "feed_forward_length",
    "leading_dense_block_count",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "rope.freq_base",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "vocab_size",
];
/// What is said otherwise: contexts that the converter makes up, layers that draft, sizes of parts that no layer has,
/// an interval of layers with attention, which the converter takes from a field that isn't there, and the size of a
/// shared expert, which it divides by the wrong number.
const OTHERWISE: [(&str, &str); 23] = [
    ("bailing_2", "block_count"),
    ("bloom", "context_length"),
    ("ernie4_5_moe", "expert_shared_feed_forward_length"),
    ("falcon", "context_length"),
    ("falcon_grouped", "context_length"),
    ("falcon_mamba", "context_length"),
    ("granite_hybrid", "context_length"),
    ("granite_hybrid_moe", "context_length"),
    ("hunyuan", "context_length"),
    ("laguna_elements", "attention.head_count"),
    ("llama4_conditional", "feed_forward_length"),
    ("mamba", "context_length"),
    ("mamba2", "context_length"),
    ("mellum", "rope.freq_base"),
    // Numbers for switches.
    ("mimo_v2", "attention.sliding_window_pattern"),
    ("nemotron_h", "context_length"),
    ("nemotron_h_moe", "context_length"),
    // A dense layer among those with experts, which the converter calls empty.
    ("nemotron_h_moe", "feed_forward_length"),
    ("qwen3_5", "full_attention_interval"),
    ("qwen3_5_conditional", "full_attention_interval"),
    ("qwen3_5_moe", "full_attention_interval"),
    ("qwen3_5_moe_conditional", "full_attention_interval"),
    ("qwen3_next", "full_attention_interval"),
];

fn compare_tensors(name: &str, ours: &[u8], theirs: &[u8], wrong: &mut Vec<String>) {
    let (own, other) = (tensors(ours), tensors(theirs));
    // The converter puts gates and ups of some experts into one tensor.
    let merged = |tensor: &str| {
        let parts = ["ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps"];
        parts.iter().any(|part| tensor.contains(part))
            && other.keys().any(|tensor| tensor.contains("ffn_gate_up_exps"))
    };
    for (tensor, (kind, shape, bytes)) in other.iter().filter(|(tensor, _)| !merged(tensor)) {
        match own.get(tensor) {
            None => wrong.push(format!("{name}: no {tensor}")),
            Some((own, dims, _)) if (own, dims) != (kind, shape) => {
                wrong.push(format!("{name}: {tensor} {own} {dims:?}, not {kind} {shape:?}"));
            }
            // Exponentials of another library.
            Some((.., own)) if tensor.ends_with("ssm_a") => {
                let numbers = |bytes: &[u8]| -> Vec<f32> {
                    let all = bytes.chunks_exact(4);
                    all.map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
                };
                assert!(relative_error(&numbers(own), &numbers(bytes)) < 1e-6, "{name}: {tensor}");
            }
            Some((.., own)) if own != bytes => wrong.push(format!("{name}: {tensor} differs")),
            Some(_) => {}
        }
    }
    for tensor in own.keys().filter(|tensor| !other.contains_key(*tensor) && !merged(tensor)) {
        wrong.push(format!("{name}: {tensor} besides"));
    }
}

fn compare_metadata(name: &str, ours: &[u8], theirs: &[u8], wrong: &mut Vec<String>) {
    let (own, other) = (metadata(ours), metadata(theirs));
    let gguf = other["general.architecture"].clone();
    assert_eq!(own["general.architecture"], gguf, "{name}");
    let prefix = format!("{}.", gguf.split('"').nth(1).unwrap());
    let below = |all: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        let ends = all.iter().filter_map(|(key, value)| {
            // Numbers are the same with a sign and without.
            Some((key.strip_prefix(&prefix)?.to_owned(), value.replace("I32", "U32")))
        });
        ends.collect()
    };
    let (own, other) = (below(&own), below(&other));
    for (end, value) in &other {
        match own.get(end) {
            None if UNSAID.contains(&end.as_str()) || end == "tensor_data_layout" => {}
            None => wrong.push(format!("{name}: no {end}, which is {value}")),
            Some(own) if own != value && !OTHERWISE.contains(&(name, end)) => {
                wrong.push(format!("{name}: {end} {own}, not {value}"));
            }
            Some(_) => {}
        }
    }
    let besides = own.iter().filter(|(end, _)| !other.contains_key(*end));
    for (end, value) in besides.filter(|(end, _)| !SAID_BESIDES.contains(&end.as_str())) {
        wrong.push(format!("{name}: {end} {value} besides"));
    }
}

#[test]
fn written_files_are_those_of_the_formats_own_converter() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (name, changes) in all_changes() {
        // Nobody makes matrices ternary here.
        if name.starts_with("..") || changes.of.is_some() || changes.ternary {
            continue;
        }
        let temporary = tempfile::tempdir().unwrap();
        let copy = prepared(&name, &changes, temporary.path());
        let file = temporary.path().join("model.gguf");
        if convert(&copy, &file, WeightKind::Bf16, &mut |_, _| {}).is_err() {
            continue;
        }
        let (ours, theirs) = (std::fs::read(&file).unwrap(), converted(&name).unwrap());
        compare_tensors(&name, &ours, &theirs, &mut wrong);
        compare_metadata(&name, &ours, &theirs, &mut wrong);
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 70, "{count}");
}
