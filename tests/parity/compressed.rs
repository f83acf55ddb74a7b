//! Checkpoints that other software quantized, beside what transformers computes with the numbers
//! that their codes stand for.

use std::collections::HashMap;

use candle_core::DType;
use candle_core::quantized::GgmlDType;
use sconce::layers::forward::KvFormat;
use sconce::models::CausalLm;
use sconce::weights::MemoryTensors;
use sconce_blocks::{Coded, Kind};

use super::driver::{Driver, greedy};
use super::reference::{Distance, follow, reference};
use super::{device, load, load_with, open};

/// Folders below `tests/fixtures/parity/compressed`, what their matrices become, and how far
/// log-probabilities may be off: minima of blocks are rounded to f16.
const FORMATS: [(&str, Kind, f32); 13] = [
    ("gptq", Kind::Ggml(GgmlDType::Q4_0), 2e-4),
    ("gptq_asymmetric", Kind::Ggml(GgmlDType::Q4_1), 2e-2),
    ("gptq_ordered", Kind::Ggml(GgmlDType::F16), 2e-2),
    ("gptq_v2_8bit", Kind::Ggml(GgmlDType::Q8_0), 2e-4),
    ("awq", Kind::Ggml(GgmlDType::Q4_1), 2e-2),
    ("packed", Kind::Ggml(GgmlDType::Q4_0), 2e-4),
    ("packed_asymmetric", Kind::Ggml(GgmlDType::Q4_1), 2e-2),
    ("int8", Kind::Ggml(GgmlDType::Q8_0), 2e-4),
    ("mxfp4", Kind::Coded(Coded::Mxfp4), 2e-4),
    ("nvfp4", Kind::Ggml(GgmlDType::BF16), 2e-4),
    ("fp8_rows", Kind::Ggml(GgmlDType::BF16), 2e-4),
    ("fp8", Kind::Ggml(GgmlDType::BF16), 2e-4),
    ("fp8_blocks", Kind::Ggml(GgmlDType::BF16), 2e-4),
];

/// The model of a fixture on its numbers as f32.
fn widened(name: &str) -> Box<dyn CausalLm> {
    let weights = open(name).weights(device());
    let mut tensors = HashMap::new();
    let mut widen = |name: &str, shape: &[usize]| {
        let tensor = weights.stored(name, shape).unwrap().to_tensor(DType::F32).unwrap();
        tensors.insert(name.to_owned(), tensor);
    };
    widen("model.embed_tokens.weight", &[160, 64]);
    for norm in ["norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm"] {
        widen(&format!("model.{norm}.weight"), &[64]);
    }
    for (matrix, rows, columns) in [
        ("self_attn.q_proj", 64, 64),
        ("self_attn.k_proj", 32, 64),
        ("self_attn.v_proj", 32, 64),
        ("self_attn.o_proj", 64, 64),
        ("mlp.gate_proj", 96, 64),
        ("mlp.up_proj", 96, 64),
        ("mlp.down_proj", 64, 96),
    ] {
        widen(&format!("model.layers.0.{matrix}.weight"), &[rows, columns]);
    }
    load_with(name, MemoryTensors::new(tensors))
}

#[test]
fn logprobs_are_those_of_the_numbers_that_codes_stand_for() {
    for (format, _, most) in FORMATS {
        let name = format!("compressed/{format}");
        let model = widened(&name);
        let vocab = u32::try_from(model.vocab_size()).unwrap();
        let mut driver = Driver::new(model, KvFormat::F32, 64, Some(7));
        for run in &reference(&name).float32 {
            let ours = follow(&mut driver, run, vocab);
            let off = Distance::to_run(&ours, run);
            assert!(off.largest < most, "{name}, prompt of {}: {off:?}", run.prompt);
            let tokens: Vec<u32> = ours.iter().map(|logprobs| greedy(logprobs)).collect();
            let equal = tokens.iter().zip(&run.tokens).filter(|(a, b)| a == b).count();
            assert!(most > 1e-3 || equal == tokens.len(), "{name}, prompt of {}", run.prompt);
        }
    }
}

#[test]
fn matrices_stay_as_small_as_their_codes_where_a_kind_holds_them() {
    for (format, kind, _) in FORMATS {
        let source = open(&format!("compressed/{format}"));
        assert!(source.config.get("quantization_config").is_none());
        let weights = source.weights(device()).scope("model.layers.0");
        for (name, shape) in [("self_attn.k_proj", [32, 64]), ("mlp.down_proj", [64, 96])] {
            let stored = weights.scope(name).stored("weight", &shape).unwrap();
            assert_eq!(stored.kind(), kind, "{format} {name}");
        }
        assert!(weights.contains("mlp.up_proj.weight") && !weights.contains("mlp.up_proj.bias"));
        let norm = weights.scope("input_layernorm").dense("weight", &[64], DType::F32);
        assert_eq!(norm.unwrap().dims(), [64]);
    }
}

/// With the products that serve such matrices, not only in f32.
#[test]
fn quantized_products_come_near() {
    for (format, _, _) in FORMATS {
        let name = format!("compressed/{format}");
        let model = load(&name);
        let vocab = u32::try_from(model.vocab_size()).unwrap();
        let mut driver = Driver::new(model, KvFormat::F32, 64, None);
        for run in &reference(&name).float32 {
            let off = Distance::to_run(&follow(&mut driver, run, vocab), run);
            assert!(off.mean < 0.15, "{name}, prompt of {}: {off:?}", run.prompt);
        }
    }
}

/// Activations have a scale for each token, as the configuration asks, where products run on the CPU.
#[test]
fn activations_by_token_are_those_of_the_peer() {
    let name = "compressed/w8a8";
    let stored = open(name).weights(device()).scope("model.layers.0.self_attn.k_proj");
    assert_eq!(stored.stored("weight", &[32, 64]).unwrap().kind(), Kind::W8A8);
    let vocab = u32::try_from(load(name).vocab_size()).unwrap();
    // The same weights without a word of activations have a scale for 32 elements of a token.
    for (name, range) in [(name, 0.0..0.01), ("compressed/int8", 0.01..0.15)] {
        let mut driver = Driver::new(load(name), KvFormat::F32, 64, None);
        for run in &reference("compressed/w8a8").float32 {
            let off = Distance::to_run(&follow(&mut driver, run, vocab), run);
            assert!(range.contains(&off.mean), "{name}, prompt of {}: {off:?}", run.prompt);
        }
    }
}

/// gpt-oss as it is published: the numbers of its experts in f32, and the products that serve them.
#[test]
fn experts_of_four_bits_are_those_of_the_reference() {
    let name = "gpt_oss_mxfp4";
    let weights = open(name).weights(device());
    let mut tensors = HashMap::new();
    let mut widen = |name: &str, shape: &[usize]| {
        let stored = weights.stored(name, shape).unwrap();
        let quantized = name.ends_with("_blocks").then_some(Kind::Coded(Coded::Mxfp4));
        assert_eq!(stored.kind(), quantized.unwrap_or(GgmlDType::BF16.into()), "{name}");
        tensors.insert(name.to_owned(), stored.to_tensor(DType::F32).unwrap());
    };
    for name in ["model.embed_tokens", "lm_head"] {
        widen(&format!("{name}.weight"), &[160, 32]);
    }
    widen("model.norm.weight", &[32]);
    for (part, shape) in [
        ("input_layernorm.weight", &[32][..]),
        ("post_attention_layernorm.weight", &[32]),
        ("self_attn.q_proj.weight", &[48, 32]),
        ("self_attn.q_proj.bias", &[48]),
        ("self_attn.k_proj.weight", &[24, 32]),
        ("self_attn.k_proj.bias", &[24]),
        ("self_attn.v_proj.weight", &[24, 32]),
        ("self_attn.v_proj.bias", &[24]),
        ("self_attn.o_proj.weight", &[32, 48]),
        ("self_attn.o_proj.bias", &[32]),
        ("self_attn.sinks", &[4]),
        ("mlp.router.weight", &[3, 32]),
        ("mlp.router.bias", &[3]),
        ("mlp.experts.gate_up_proj_blocks", &[3, 64, 32]),
        ("mlp.experts.gate_up_proj_bias", &[3, 64]),
        ("mlp.experts.down_proj_blocks", &[3, 32, 32]),
        ("mlp.experts.down_proj_bias", &[3, 32]),
    ] {
        widen(&format!("model.layers.0.{part}"), shape);
    }
    let exact = load_with(name, MemoryTensors::new(tensors));
    for (model, most) in [(exact, 2e-4), (load(name), 0.5)] {
        let vocab = u32::try_from(model.vocab_size()).unwrap();
        let mut driver = Driver::new(model, KvFormat::F32, 64, None);
        for run in &reference(name).float32 {
            let off = Distance::to_run(&follow(&mut driver, run, vocab), run);
            assert!(off.mean < most, "prompt of {}: {off:?}", run.prompt);
            assert!(most > 1e-3 || off.largest < most, "prompt of {}: {off:?}", run.prompt);
        }
    }
}
