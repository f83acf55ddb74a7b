//! A GGUF file gives the logits of the same weights under their Hugging Face names, to the bit:
//! names, row orders, configuration and quantized products are right together.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use candle_core::{Device, Tensor};
use sconce::blocks::{Coded, dequantize};
use sconce::layers::forward::KvFormat;
use sconce::models::CausalLm;
use sconce::models::config::HfConfig;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;
use sconce::weights::{MemoryTensors, TensorSource, Weights};

use super::device;
use super::driver::Driver;
use crate::weights::gguf_file::{GgufFile, HEAD_DIM, HEADS, HIDDEN, KEY_HEADS, noise};

const NAMES: [(&str, &str); 15] = [
    ("token_embd.weight", "model.embed_tokens.weight"),
    ("output_norm.weight", "model.norm.weight"),
    ("blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight"),
    ("blk.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
    ("blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight"),
    ("blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight"),
    ("blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight"),
    ("blk.0.attn_output.weight", "model.layers.0.self_attn.o_proj.weight"),
    ("blk.0.attn_q_norm.weight", "model.layers.0.self_attn.q_norm.weight"),
    ("blk.0.attn_k_norm.weight", "model.layers.0.self_attn.k_norm.weight"),
    ("blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias"),
    ("blk.0.attn_k.bias", "model.layers.0.self_attn.k_proj.bias"),
    ("blk.0.attn_v.bias", "model.layers.0.self_attn.v_proj.bias"),
    ("blk.0.ffn_gate.weight", "model.layers.0.mlp.gate_proj.weight"),
    ("blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj.weight"),
];
const DOWN: (&str, &str) = ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight");

/// A small model of `architecture` whose tensors have the shapes that decoding needs.
fn file(architecture: &str, kind: GgmlDType) -> GgufFile {
    let mut file = GgufFile::new(architecture, kind);
    let width = HEADS * HEAD_DIM;
    // K of this product is not a multiple of 256, which some kinds need.
    let output_kind = if width.is_multiple_of(kind.block_size()) { kind } else { GgmlDType::F32 };
    file.add("blk.0.attn_output.weight", noise(40, &[HIDDEN, width]), output_kind);
    match architecture {
        "qwen2" => {
            for (seed, (name, rows)) in (50..).zip([
                ("attn_q", width),
                ("attn_k", KEY_HEADS * HEAD_DIM),
                ("attn_v", KEY_HEADS * HEAD_DIM),
            ]) {
                file.add(&format!("blk.0.{name}.bias"), noise(seed, &[rows]), GgmlDType::F32);
            }
        }
        "qwen3" => {
            for (seed, name) in [(60, "attn_q_norm"), (61, "attn_k_norm")] {
                file.add(&format!("blk.0.{name}.weight"), noise(seed, &[HEAD_DIM]), GgmlDType::F32);
            }
        }
        _ => {}
    }
    file
}

/// The rows of a matrix that the Llama files keep in interleaved order, back in halves.
fn in_halves(tensor: &Tensor, heads: usize) -> Tensor {
    let columns = tensor.dim(1).unwrap();
    tensor
        .reshape((heads, HEAD_DIM / 2, 2, columns))
        .and_then(|tensor| {
            tensor.transpose(1, 2)?.contiguous()?.reshape((heads * HEAD_DIM, columns))
        })
        .unwrap()
}

/// The file's tensors, dequantized, under Hugging Face names.
fn dequantized(file: &GgufFile, architecture: &str) -> MemoryTensors {
    let mut tensors = HashMap::new();
    for (ours, theirs) in NAMES.into_iter().chain([DOWN]) {
        if !file.tensors.contains_key(ours) {
            continue;
        }
        let tensor = file.stored(ours).dequantize(&Device::Cpu).unwrap();
        let tensor = match (architecture, ours) {
            ("llama", "blk.0.attn_q.weight") => in_halves(&tensor, HEADS),
            ("llama", "blk.0.attn_k.weight") => in_halves(&tensor, KEY_HEADS),
            _ => tensor,
        };
        tensors.insert(theirs.to_owned(), tensor);
    }
    MemoryTensors::new(tensors)
}

fn open(file: &GgufFile) -> ModelSource {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    file.write(&path);
    ModelSource::open(&ModelRef::GgufFile(path), &HubOptions::offline(folder.path())).unwrap()
}

fn logits(model: Box<dyn CausalLm>) -> Vec<u32> {
    let mut driver = Driver::new(model, KvFormat::F32, 4, None);
    let tokens: Vec<u32> = (0..40).map(|i| i * i % 6).collect();
    let seq = driver.add(&tokens);
    driver.finish(seq, usize::MAX).into_iter().map(f32::to_bits).collect()
}

fn model(config: &serde_json::Value, tensors: Arc<dyn TensorSource>) -> Box<dyn CausalLm> {
    let weights = Weights::new(tensors, device().clone());
    sconce::models::load(&HfConfig::from_value(config).unwrap(), &weights).unwrap()
}

/// Root mean square of the differences, in parts of that of `expected`.
fn relative_error(ours: &[u32], expected: &[u32]) -> f32 {
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>();
    let float = |bits: &u32| f32::from_bits(*bits);
    let mut differences = ours.iter().zip(expected).map(|(a, b)| float(a) - float(b));
    (square(&mut differences) / square(&mut expected.iter().map(float))).sqrt()
}

/// To the bit where products run on f32 rows. Rows rounded to bf16 or bytes move the logits a
/// little (less than one percent a product, in models this narrow); a misplaced row of weights
/// would move them altogether.
#[test]
fn every_kind_gives_the_logits_of_its_dequantized_weights() {
    use GgmlDType::{BF16, F16, F32, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    let kinds = [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K];
    for architecture in ["llama", "qwen2", "qwen3"] {
        for kind in kinds {
            let file = file(architecture, kind);
            let source = open(&file);
            let from_file = {
                let config = HfConfig::from_value(&source.config).unwrap();
                sconce::models::load(&config, &source.weights(device())).unwrap()
            };
            let named = model(&source.config, Arc::new(dequantized(&file, architecture)));
            let error = relative_error(&logits(from_file), &logits(named));
            // A GPU's products of half precision are others than those of f32.
            let exact = kind == F32 || device().is_cpu() && matches!(kind, F16 | Q2K | Q3K);
            let bound = if exact { 0.0 } else { 0.05 };
            assert!(error <= bound, "{architecture} {kind:?}: {error}");
        }
    }
}

/// The bytes of a Qwen3 file whose large matrices are random codes of `kind`, and their numbers.
fn coded(kind: Coded) -> (Vec<u8>, MemoryTensors) {
    let file = file("qwen3", GgmlDType::F32);
    let mut bytes = file.bytes();
    let mut tensors = HashMap::new();
    for (seed, (ours, theirs)) in (1u32..).zip(NAMES.into_iter().chain([DOWN])) {
        let Some((tensor, _)) = file.tensors.get(ours) else { continue };
        let mut numbers = tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        if tensor.rank() == 2 && tensor.dim(1).unwrap().is_multiple_of(kind.block_size()) {
            let data: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            let find = |part: &[u8]| bytes.windows(part.len()).position(|at| at == part).unwrap();
            let start = find(&data[..64]);
            // A name is followed by the number of dimensions, two of them, and the kind.
            let number = find(ours.as_bytes()) + ours.len() + 4 + 16;
            bytes[number..number + 4].copy_from_slice(&kind.number().to_le_bytes());
            let blocks = blocks(kind, seed, numbers.len() / kind.block_size());
            bytes[start..start + blocks.len()].copy_from_slice(&blocks);
            dequantize(kind, &blocks, &mut numbers);
        }
        let tensor = Tensor::from_vec(numbers, tensor.dims(), &Device::Cpu).unwrap();
        tensors.insert(theirs.to_owned(), tensor);
    }
    (bytes, MemoryTensors::new(tensors))
}

/// Random blocks with scales that make numbers as small as a model's.
fn blocks(kind: Coded, seed: u32, count: usize) -> Vec<u8> {
    let mut state = seed;
    let mut byte = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    let mut bytes: Vec<u8> = (0..count * kind.type_size()).map(|_| byte()).collect();
    let scale = half::f16::from_f32(match kind {
        Coded::Iq1S | Coded::Iq1M | Coded::Tq1_0 | Coded::Tq2_0 => 0.01,
        _ => 0.0005,
    });
    let scale = scale.to_le_bytes();
    for block in bytes.chunks_exact_mut(kind.type_size()) {
        match kind {
            Coded::Nvfp4 => block[..4].fill(0x10),
            // 2^-6.
            Coded::Mxfp4 => block[0] = 121,
            Coded::Iq1M => {
                let [low, high] = scale;
                for (i, four) in [low & 15, low >> 4, high & 15, high >> 4].iter().enumerate() {
                    block[49 + 2 * i] = block[49 + 2 * i] & 15 | four << 4;
                }
            }
            Coded::Tq1_0 => block[52..54].copy_from_slice(&scale),
            Coded::Tq2_0 => block[64..66].copy_from_slice(&scale),
            _ => block[..2].copy_from_slice(&scale),
        }
    }
    bytes
}

#[test]
fn files_of_codes_give_the_logits_of_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    for kind in Coded::ALL {
        let (bytes, tensors) = coded(kind);
        std::fs::write(&path, bytes).unwrap();
        let options = HubOptions::offline(folder.path());
        let source = ModelSource::open(&ModelRef::GgufFile(path.clone()), &options).unwrap();
        let from_file = {
            let config = HfConfig::from_value(&source.config).unwrap();
            sconce::models::load(&config, &source.weights(device())).unwrap()
        };
        let named = model(&source.config, Arc::new(tensors));
        let error = relative_error(&logits(from_file), &logits(named));
        assert!(error <= 0.05, "{kind:?}: {error}");
    }
}

/// Llama 3.1 files carry the divisors of the frequencies instead of the rule that makes them.
#[test]
fn rope_divisors_are_the_llama3_rule() {
    let mut file = file("llama", GgmlDType::F32);
    let plain = open(&file);
    let (factor, low, high, original) = (8.0_f32, 1.0_f32, 4.0_f32, 64.0_f32);
    let divisors: Vec<f32> = (0..HEAD_DIM / 2)
        .map(|i| {
            let frequency = 1.0 / 500_000.0_f32.powf((2 * i) as f32 / HEAD_DIM as f32);
            let wavelength = 2.0 * std::f32::consts::PI / frequency;
            if wavelength < original / high {
                1.0
            } else if wavelength > original / low {
                factor
            } else {
                let smooth = (original / wavelength - low) / (high - low);
                1.0 / ((1.0 - smooth) / factor + smooth)
            }
        })
        .collect();
    assert!(divisors.iter().any(|divisor| *divisor > 1.0));
    let count = divisors.len();
    let divisors = Tensor::from_vec(divisors, count, &Device::Cpu).unwrap();
    file.add("rope_freqs.weight", divisors, GgmlDType::F32);
    file.set("llama.rope.dimension_count", Value::U32(HEAD_DIM as u32));
    let source = open(&file);
    let from_file = model(&source.config, Arc::new(dequantized(&file, "llama")));
    let mut config = plain.config.clone();
    let ruled = model(&config, Arc::new(dequantized(&file, "llama")));
    assert_ne!(logits(from_file), logits(ruled), "the divisors change something");
    let from_file = model(&source.config, Arc::new(dequantized(&file, "llama")));
    config["rope_scaling"] = serde_json::json!({
        "rope_type": "llama3", "factor": factor, "low_freq_factor": low,
        "high_freq_factor": high, "original_max_position_embeddings": 64,
    });
    let ruled = model(&config, Arc::new(dequantized(&file, "llama")));
    let bits = |bits: Vec<u32>| bits.into_iter().map(f32::from_bits).collect::<Vec<_>>();
    for (ours, theirs) in bits(logits(from_file)).into_iter().zip(bits(logits(ruled))) {
        assert!((ours - theirs).abs() < 1e-3, "{ours} and {theirs}");
    }
}
