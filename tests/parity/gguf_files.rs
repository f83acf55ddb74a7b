//! What the converter of GGUF's own project makes of the tiny checkpoints gives the logits of the
//! checkpoints themselves, for every architecture that has both.
//!
//! The fixtures are made by `tests/fixtures/make_gguf.py`, which says what a delta is.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::quantized::gguf_file::Content;
use candle_core::quantized::{GgmlDType, QTensor, gguf_file};
use candle_core::{DType, Device, IndexOp, Tensor};
use sconce::config::{DeviceChoice, EngineConfig};
use sconce::engine::startup::LoadedModel;
use sconce::layers::forward::KvFormat;
use sconce::models::CausalLm;
use sconce::models::config::HfConfig;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;
use sconce::weights::{MemoryTensors, Weights};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::driver::Driver;
use super::{device, folder, prompt};

/// What was changed about a checkpoint before its conversion.
#[derive(Default, Deserialize)]
pub(super) struct Changes {
    #[serde(default)]
    pub(super) config: Map<String, Value>,
    #[serde(default)]
    pub(super) text_config: Map<String, Value>,
    /// Beginnings of names.
    #[serde(default)]
    pub(super) without: Vec<String>,
    /// Whether matrices of layers become multiples of -1, 0 and 1.
    #[serde(default)]
    pub(super) ternary: bool,
    /// The checkpoint, where the file has another name.
    pub(super) of: Option<String>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf")
}

pub(super) fn all_changes() -> Vec<(String, Changes)> {
    let text = std::fs::read_to_string(fixtures().join("changes.json")).unwrap();
    let changes: HashMap<String, Changes> = serde_json::from_str(&text).unwrap();
    let mut changes: Vec<_> = changes.into_iter().collect();
    changes.sort_by(|(a, _), (b, _)| a.cmp(b));
    assert!(changes.len() > 40);
    changes
}

/// The file that the converter wrote of a fixture, if it knows the architecture.
pub(crate) fn converted(name: &str) -> Option<Vec<u8>> {
    converted_of(name, name)
}

/// The file of this name, which the converter wrote of a fixture.
fn converted_of(name: &str, checkpoint: &str) -> Option<Vec<u8>> {
    let delta = fixtures().join(format!("{name}.delta"));
    restored(&delta, &folder(checkpoint).join("model.safetensors"))
}

/// The file, and the name of its fixture.
fn file_of(name: &str, changes: &Changes) -> (Vec<u8>, String) {
    let checkpoint = changes.of.clone().unwrap_or_else(|| name.to_owned());
    (converted_of(name, &checkpoint).unwrap(), checkpoint)
}

/// The file that a delta makes of a checkpoint, if there is one.
pub(crate) fn restored(delta: &Path, checkpoint: &Path) -> Option<Vec<u8>> {
    let name = delta.display().to_string();
    let delta = std::fs::read(delta).ok()?;
    Some(rebuilt(&name, &delta, &std::fs::read(checkpoint).unwrap()))
}

/// The file that a delta makes of its source.
pub(crate) fn rebuilt(name: &str, delta: &[u8], source: &[u8]) -> Vec<u8> {
    let mut rest = delta;
    let mut take = |count: usize| {
        let (taken, after) = rest.split_at(count);
        rest = after;
        taken
    };
    let length = u64::from_le_bytes(take(8).try_into().unwrap());
    let hash = u64::from_le_bytes(take(8).try_into().unwrap());
    let mut file = Vec::new();
    while (file.len() as u64) < length {
        let count = u32::from_le_bytes(take(4).try_into().unwrap());
        if count >> 31 == 0 {
            file.extend_from_slice(take(count as usize));
        } else {
            let count = (count & !(1 << 31)) as usize;
            let offset = u32::from_le_bytes(take(4).try_into().unwrap()) as usize;
            file.extend_from_slice(&source[offset..offset + count]);
        }
    }
    assert_eq!(fnv(&file), hash, "{name}: the checkpoint is another than the one converted");
    file
}

fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn open(bytes: &[u8]) -> ModelSource {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    ModelSource::open(&ModelRef::GgufFile(path), &HubOptions::offline(folder.path())).unwrap()
}

pub(super) fn model_of(source: &ModelSource) -> Box<dyn CausalLm> {
    let config = HfConfig::from_value(&source.config).unwrap();
    sconce::models::load(&config, &source.weights(device())).unwrap()
}

/// The checkpoint with the same changes.
fn checkpoint(name: &str, changes: &Changes) -> Box<dyn CausalLm> {
    let text = std::fs::read_to_string(folder(name).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config.as_object_mut().unwrap().extend(changes.config.clone());
    if config.get("quantization_config").is_some() {
        // As it is: there is no other way to read its experts.
        assert!(changes.config.is_empty() && changes.without.is_empty(), "{name}");
        let reference = ModelRef::Folder(folder(name));
        return model_of(
            &ModelSource::open(&reference, &HubOptions::offline(&folder(name))).unwrap(),
        );
    }
    if let Some(text_config) = config.get_mut("text_config") {
        text_config.as_object_mut().unwrap().extend(changes.text_config.clone());
    }
    let file = folder(name).join("model.safetensors");
    if changes.without.is_empty() && !changes.ternary {
        let copy = tempfile::tempdir().unwrap();
        std::fs::write(copy.path().join("config.json"), config.to_string()).unwrap();
        std::fs::copy(file, copy.path().join("model.safetensors")).unwrap();
        let reference = ModelRef::Folder(copy.path().to_owned());
        return model_of(
            &ModelSource::open(&reference, &HubOptions::offline(copy.path())).unwrap(),
        );
    }
    let mut tensors = candle_core::safetensors::load(file, &Device::Cpu).unwrap();
    tensors.retain(|name, _| !changes.without.iter().any(|start| name.starts_with(start)));
    if changes.ternary {
        for (_, tensor) in tensors.iter_mut().filter(|(name, _)| name.contains("_proj.")) {
            *tensor = ternary(tensor);
        }
    }
    let weights = Weights::new(Arc::new(MemoryTensors::new(tensors)), device().clone());
    sconce::models::load(&HfConfig::from_value(&config).unwrap(), &weights).unwrap()
}

/// The mean of absolute values times -1, 0 or 1, as conversion has it.
fn ternary(weight: &Tensor) -> Tensor {
    let (kind, weight) = (weight.dtype(), weight.to_dtype(DType::F32).unwrap());
    let mean = weight.abs().unwrap().mean_all().unwrap().to_scalar::<f32>().unwrap();
    let inverse = 1.0 / f64::from(mean.max(1e-5));
    let signs = (weight * inverse).unwrap().round().unwrap().clamp(-1f32, 1f32).unwrap();
    (signs / inverse).unwrap().to_dtype(kind).unwrap()
}

/// Logits behind a prompt that is longer than any window.
pub(super) fn logits(model: Box<dyn CausalLm>) -> Vec<f32> {
    let vocab = u32::try_from(model.vocab_size()).unwrap();
    let mut driver = Driver::new(model, KvFormat::F32, 16, None);
    let seq = driver.add(&prompt(130, vocab));
    driver.finish(seq, usize::MAX)
}

/// Root mean square of the differences, in parts of that of `expected`.
pub(super) fn relative_error(ours: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(ours.len(), expected.len());
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>();
    let mut differences = ours.iter().zip(expected).map(|(a, b)| a - b);
    (square(&mut differences) / square(&mut expected.iter().copied())).sqrt()
}

/// Not so of a NaN.
pub(super) fn at_most(error: f32, bound: f32) -> bool {
    error <= bound
}

#[test]
fn converted_checkpoints_give_the_logits_of_the_checkpoints() {
    let mut wrong = Vec::new();
    for (name, changes) in all_changes() {
        let (file, of) = file_of(&name, &changes);
        let ours = logits(model_of(&open(&file)));
        let error = relative_error(&ours, &logits(checkpoint(&of, &changes)));
        let bound = match name.as_str() {
            // A base of the rotary embedding that conversion computed, in f32.
            "hunyuan" | "hunyuan_vl" => 1e-4,
            // Exponentials of another library.
            "bailing_hybrid" | "kimi_linear" => 1e-5,
            _ => 0.0,
        };
        if !at_most(error, bound) {
            wrong.push((name, error));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

type Tensors = BTreeMap<String, QTensor>;

/// The same file with other tensors.
fn rewritten(file: &[u8], change: impl FnOnce(Tensors) -> Tensors) -> Vec<u8> {
    let mut reader = std::io::Cursor::new(file);
    let content = Content::read(&mut reader).unwrap();
    let names = content.tensor_infos.keys().cloned();
    let tensors = names.map(|name| {
        let stored = content.tensor(&mut reader, &name, &Device::Cpu).unwrap();
        (name, stored)
    });
    let tensors = change(tensors.collect());
    let metadata: Vec<_> = content.metadata.iter().map(|(key, v)| (key.as_str(), v)).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut bytes = std::io::Cursor::new(Vec::new());
    gguf_file::write(&mut bytes, &metadata, &tensors).unwrap();
    bytes.into_inner()
}

/// The same file with its matrices in blocks of 32, as far as their rows divide into those.
fn quantized(file: &[u8], kind: GgmlDType) -> Vec<u8> {
    rewritten(file, |tensors| {
        let mut count = 0;
        let mut round = |(name, stored): (String, QTensor)| {
            let columns = *stored.shape().dims().last().unwrap();
            let matrix = stored.shape().rank() > 1 && name.ends_with(".weight");
            if !matrix
                || !columns.is_multiple_of(kind.block_size())
                || name.contains("norm")
                || name.contains("exp_probs")
                // As the quantizer of the format's own project leaves it.
                || name.contains("ffn_gate_inp")
            {
                return (name, stored);
            }
            count += 1;
            let tensor = stored.dequantize(&Device::Cpu).unwrap();
            (name, QTensor::quantize(&tensor, kind).unwrap())
        };
        let tensors = tensors.into_iter().map(&mut round).collect();
        assert!(count >= 2, "{count} matrices were quantized");
        tensors
    })
}

#[test]
fn quantized_conversions_are_near_the_checkpoints() {
    let mut wrong = Vec::new();
    // The tensor library can't write a file with the kind of its experts.
    let all = all_changes().into_iter().filter(|(name, _)| name != "gpt_oss_mxfp4");
    for (name, changes) in all {
        let (file, of) = file_of(&name, &changes);
        let ours = logits(model_of(&open(&quantized(&file, GgmlDType::Q8_0))));
        let error = relative_error(&ours, &logits(checkpoint(&of, &changes)));
        // Where rounding changes which experts are chosen: what it changes in the file as it was.
        if !at_most(error, 0.15) && !at_most(relative_error(&ours, &rounded_here(&file)), 1e-3) {
            wrong.push((name, error));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Logits of the file as the converter wrote it, its matrices rounded as they are loaded.
fn rounded_here(file: &[u8]) -> Vec<f32> {
    let source = open(file);
    let config = HfConfig::from_value(&source.config).unwrap();
    let weights = source.weights(device()).rounded_to(Some(GgmlDType::Q8_0));
    logits(sconce::models::load(&config, &weights).unwrap())
}

/// Puts tensors of every layer into one, along a dimension.
fn joined(mut tensors: Tensors, parts: &[&str], into: &str, dim: usize) -> Tensors {
    let mut count = 0;
    for layer in 0..2 {
        for ending in ["weight", "bias"] {
            let name = |part: &str| format!("blk.{layer}.{part}.{ending}");
            if !tensors.contains_key(&name(parts[0])) {
                continue;
            }
            let parts = parts.iter().map(|part| tensors.remove(&name(part)).unwrap());
            let parts: Vec<_> = parts.map(|part| part.dequantize(&Device::Cpu).unwrap()).collect();
            let whole = Tensor::cat(&parts, dim).unwrap();
            tensors.insert(name(into), QTensor::quantize(&whole, GgmlDType::F32).unwrap());
            count += 1;
        }
    }
    assert!(count > 0, "{parts:?}");
    tensors
}

/// Puts the experts of a tensor of every layer into tensors of their own.
fn apart(mut tensors: Tensors, part: &str) -> Tensors {
    for layer in 0..2 {
        let whole = tensors.remove(&format!("blk.{layer}.{part}_exps.weight")).unwrap();
        let whole = whole.dequantize(&Device::Cpu).unwrap();
        for expert in 0..whole.dim(0).unwrap() {
            let one = QTensor::quantize(
                &whole.i(expert).unwrap().force_contiguous().unwrap(),
                GgmlDType::F32,
            )
            .unwrap();
            tensors.insert(format!("blk.{layer}.{part}.{expert}.weight"), one);
        }
    }
    tensors
}

type Change<'a> = &'a dyn Fn(Tensors) -> Tensors;

/// Keys and values of latent vectors as files had them at first.
fn latent_together(mut tensors: Tensors) -> Tensors {
    for layer in 0..2 {
        let mut take = |part: &str| {
            let stored = tensors.remove(&format!("blk.{layer}.{part}.weight")).unwrap();
            stored.dequantize(&Device::Cpu).unwrap()
        };
        let (keys, values) = (take("attn_k_b").transpose(1, 2).unwrap(), take("attn_v_b"));
        let both = Tensor::cat(&[keys, values], 1).unwrap().flatten(0, 1).unwrap();
        let both = QTensor::quantize(&both, GgmlDType::F32).unwrap();
        tensors.insert(format!("blk.{layer}.attn_kv_b.weight"), both);
    }
    tensors
}

/// Conversions of other times and other options put tensors together that are apart today, and the
/// other way round.
#[test]
fn joined_and_separate_tensors_are_the_same_model() {
    let qkv = ["attn_q", "attn_k", "attn_v"];
    let gate_up = ["ffn_gate_exps", "ffn_up_exps"];
    let cases: [(&str, Change<'_>); 8] = [
        ("phi", &|tensors| joined(tensors, &qkv, "attn_qkv", 0)),
        // The dimension of a head, which is found in the queries' rows elsewhere.
        ("glm4", &|tensors| joined(tensors, &qkv, "attn_qkv", 0)),
        ("mixtral", &|tensors| joined(tensors, &gate_up, "ffn_gate_up_exps", 1)),
        ("qwen3_moe", &|tensors| joined(tensors, &gate_up, "ffn_gate_up_exps", 1)),
        ("mixtral", &|tensors| apart(apart(apart(tensors, "ffn_gate"), "ffn_up"), "ffn_down")),
        ("granite_moe", &|tensors| apart(tensors, "ffn_down")),
        ("deepseek_v2", &latent_together),
        ("deepseek_v3", &latent_together),
    ];
    for (name, change) in cases {
        let file = converted(name).unwrap();
        let exact = |tensors: Tensors| -> Tensors {
            let exact = |stored: QTensor| {
                QTensor::quantize(&stored.dequantize(&Device::Cpu).unwrap(), GgmlDType::F32)
            };
            tensors.into_iter().map(|(name, stored)| (name, exact(stored).unwrap())).collect()
        };
        let before = logits(model_of(&open(&rewritten(&file, exact))));
        let after = rewritten(&file, |tensors| change(exact(tensors)));
        assert_eq!(logits(model_of(&open(&after))), before, "{name}");
    }
}

/// As llama.cpp has it, whatever the tensors of the file are.
#[test]
fn the_kv_cache_of_a_file_is_f16_and_that_of_a_folder_what_its_config_names() {
    let config = EngineConfig { device: DeviceChoice::Cpu, ..EngineConfig::default() };
    let dtype = |source: &ModelSource| {
        LoadedModel::load(source, &config, Arc::new(|_, _| {}), None).unwrap().kv_dtype
    };
    let file = converted("llama2").unwrap();
    for kind in [GgmlDType::F32, GgmlDType::BF16] {
        assert_eq!(dtype(&open(&quantized(&file, kind))), DType::F16, "{kind:?}");
    }
    let folder = folder("llama2");
    let reference = ModelRef::Folder(folder.clone());
    let mut source = ModelSource::open(&reference, &HubOptions::offline(&folder)).unwrap();
    for (name, expected) in [("bfloat16", DType::BF16), ("float32", DType::F32)] {
        source.config["dtype"] = name.into();
        assert_eq!(dtype(&source), expected);
    }
}
