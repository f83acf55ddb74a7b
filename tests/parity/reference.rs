//! Our numbers beside those of transformers.

use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use candle_core::{DType, Device};
use sconce::layers::forward::{Adapter, KvFormat};
use sconce::models::CausalLm;
use sconce::weights::MemoryTensors;
use serde::Deserialize;

use super::driver::{Driver, greedy};
use super::{folder, load, load_as, load_with, models, prompt};

/// What transformers computed.
#[derive(Deserialize)]
pub(super) struct Reference {
    pub(super) float32: Vec<Run>,
    bfloat16: Vec<Run>,
}

/// One prompt: the tokens that follow, and for each the largest log-probabilities it was chosen
/// from.
#[derive(Deserialize)]
pub(super) struct Run {
    pub(super) prompt: u32,
    pub(super) tokens: Vec<u32>,
    ids: Vec<Vec<u32>>,
    logprobs: Vec<Vec<f32>>,
}

pub(super) fn reference(name: &str) -> Reference {
    let text = std::fs::read_to_string(folder(name).join("reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub(super) fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|x| f64::from(x - largest).exp()).sum();
    #[expect(clippy::cast_possible_truncation, reason = "a test compares in f32")]
    logits.iter().map(|x| x - largest - total.ln() as f32).collect()
}

/// Largest and mean distance of log-probabilities over all steps of a run.
#[derive(Debug)]
pub(super) struct Distance {
    pub(super) largest: f32,
    pub(super) mean: f32,
}

impl Distance {
    fn between(pairs: impl Iterator<Item = (f32, f32)>) -> Self {
        let (mut largest, mut sum, mut count) = (0.0f32, 0.0, 0.0);
        for (a, b) in pairs {
            assert!(!a.is_nan() && !b.is_nan());
            largest = largest.max((a - b).abs());
            sum += (a - b).abs();
            count += 1.0;
        }
        assert!(count > 0.0);
        Self { largest, mean: sum / count }
    }

    /// Of our log-probabilities, one row per step, to those of a run.
    pub(super) fn to_run(ours: &[Vec<f32>], run: &Run) -> Self {
        assert_eq!(ours.len(), run.ids.len());
        let steps = ours.iter().zip(run.ids.iter().zip(&run.logprobs));
        Self::between(steps.flat_map(|(ours, (ids, theirs))| {
            ids.iter().zip(theirs).map(|(id, theirs)| (ours[*id as usize], *theirs))
        }))
    }

    /// Of two runs over the same tokens, as far as both name the same ids.
    fn of_runs(a: &Run, b: &Run) -> Self {
        assert_eq!(a.tokens, b.tokens);
        let steps = a.ids.iter().zip(&a.logprobs).zip(b.ids.iter().zip(&b.logprobs));
        Self::between(steps.flat_map(|((a_ids, a), (b_ids, b))| {
            a_ids.iter().zip(a).filter_map(|(id, a)| {
                b_ids.iter().position(|other| other == id).map(|at| (*a, b[at]))
            })
        }))
    }
}

/// Our log-probabilities at each step of a run, given its tokens.
pub(super) fn follow(driver: &mut Driver, run: &Run, vocab: u32) -> Vec<Vec<f32>> {
    follow_with(driver, run, vocab, None)
}

/// The same with an adapter.
pub(super) fn follow_with(
    driver: &mut Driver,
    run: &Run,
    vocab: u32,
    adapter: Option<Arc<Adapter>>,
) -> Vec<Vec<f32>> {
    let seq = driver.add_adapted(&prompt(run.prompt, vocab), adapter);
    let mut steps = Vec::new();
    for token in &run.tokens {
        steps.push(log_softmax(&driver.finish(seq, usize::MAX)));
        driver.push(seq, *token);
    }
    steps
}

#[test]
fn f32_logprobs_and_greedy_tokens_equal_the_reference() {
    for name in models() {
        assert_equals_f32(name, load_as(name, Some(GgmlDType::F32)));
    }
}

/// Fails if a model in f32 has other greedy tokens or log-probabilities than the fixture says.
pub(super) fn assert_equals_f32(name: &str, model: Box<dyn CausalLm>) {
    let vocab = u32::try_from(model.vocab_size()).unwrap();
    let mut driver = Driver::new(model, KvFormat::F32, 64, Some(7));
    for run in &reference(name).float32 {
        let ours = follow(&mut driver, run, vocab);
        let tokens: Vec<u32> = ours.iter().map(|logprobs| greedy(logprobs)).collect();
        assert_eq!(tokens, run.tokens, "{name}, prompt of {}", run.prompt);
        let off = Distance::to_run(&ours, run);
        assert!(off.largest < 2e-4, "{name}, prompt of {}: {off:?}", run.prompt);
    }
}

/// Hidden states stay f32 here and only the rows that meet weights are rounded, so on the mean we
/// must be nearer to the f32 reference than the same model all in bf16 is. The largest distance of
/// a few hundred is luck in parts.
#[test]
fn bf16_weights_and_cache_are_nearer_to_f32_than_a_bf16_run() {
    // What an indexer selects of a context changes with rounding.
    for name in models().into_iter().filter(|name| !name.ends_with("_sparse")) {
        let reference = reference(name);
        let model = load(name);
        let vocab = u32::try_from(model.vocab_size()).unwrap();
        let mut driver = Driver::new(model, KvFormat::Bf16, 64, None);
        for (exact, rounded) in reference.float32.iter().zip(&reference.bfloat16) {
            let off = Distance::to_run(&follow(&mut driver, exact, vocab), exact);
            let theirs = Distance::of_runs(exact, rounded);
            let which = format!("{name}, prompt of {}: {off:?}, bf16 {theirs:?}", exact.prompt);
            assert!(off.largest < 1.5 * theirs.largest && off.mean < theirs.mean, "{which}");
            assert!(off.mean < 4e-2, "{which}");
        }
    }
}

/// With weights as small as real models', bf16 arithmetic agrees closely enough to compare.
#[test]
fn bf16_logprobs_are_those_of_the_bf16_reference() {
    for name in ["llama3_gentle", "qwen3_gentle"] {
        let reference = reference(name);
        let model = load(name);
        let vocab = u32::try_from(model.vocab_size()).unwrap();
        let mut driver = Driver::new(model, KvFormat::Bf16, 64, Some(3));
        for run in &reference.bfloat16 {
            let off = Distance::to_run(&follow(&mut driver, run, vocab), run);
            assert!(off.largest < 5e-2, "{name}, prompt of {}: {off:?}", run.prompt);
        }
        for run in &reference.float32 {
            let off = Distance::to_run(&follow(&mut driver, run, vocab), run);
            assert!(off.largest < 2e-2, "{name}, prompt of {}: {off:?}", run.prompt);
        }
    }
}

/// Their numbers have three bits of mantissa; that shows, but no more than bf16 does elsewhere.
#[test]
fn a_cache_of_8_bit_floats_stays_near_the_reference() {
    for name in ["llama3_gentle", "qwen3_gentle"] {
        let model = load_as(name, Some(GgmlDType::F32));
        let vocab = u32::try_from(model.vocab_size()).unwrap();
        let mut driver = Driver::new(model, KvFormat::Fp8, 64, Some(3));
        for run in &reference(name).float32 {
            let off = Distance::to_run(&follow(&mut driver, run, vocab), run);
            let near = off.mean < 4e-2 && off.largest < 0.2;
            assert!(near, "{name}, prompt of {}: {off:?}", run.prompt);
        }
    }
}

/// Logits of a prompt on an f32 cache.
fn logits(model: Box<dyn CausalLm>) -> Vec<u32> {
    let vocab = u32::try_from(model.vocab_size()).unwrap();
    let mut driver = Driver::new(model, KvFormat::F32, 8, None);
    let seq = driver.add(&prompt(33, vocab));
    driver.finish(seq, usize::MAX).into_iter().map(f32::to_bits).collect()
}

#[test]
fn weights_stored_in_bf16_and_widened_give_the_bits_of_f32() {
    for name in ["llama_bias", "qwen3"] {
        let file = folder(name).join("model.safetensors");
        let stored = candle_core::safetensors::load(file, &Device::Cpu).unwrap();
        let widened = stored.into_iter().map(|(name, t)| (name, t.to_dtype(DType::F32).unwrap()));
        let widened = MemoryTensors::new(widened.collect());
        let rounded = load_as(name, Some(GgmlDType::F32));
        assert_eq!(logits(load_with(name, widened)), logits(rounded), "{name}");
    }
}

#[test]
fn a_tied_checkpoint_with_a_differing_head_uses_both() {
    let file = folder("llama3").join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(file, &Device::Cpu).unwrap();
    let tied = logits(load("llama3"));
    let embedding = tensors["model.embed_tokens.weight"].clone();
    tensors.insert("lm_head.weight".to_owned(), embedding.clone());
    assert_eq!(logits(load_with("llama3", MemoryTensors::new(tensors.clone()))), tied);

    // Transformers: both are there and differ, so they are not tied.
    let doubled = (&embedding * 2.0).unwrap();
    tensors.insert("lm_head.weight".to_owned(), doubled);
    let apart = logits(load_with("llama3", MemoryTensors::new(tensors.clone())));
    let twice = |bits: &u32| f32::to_bits(2.0 * f32::from_bits(*bits));
    assert_eq!(apart, tied.iter().map(twice).collect::<Vec<_>>());

    // Only the head is there: it is the embedding as well.
    tensors.remove("model.embed_tokens.weight");
    tensors.insert("lm_head.weight".to_owned(), embedding);
    assert_eq!(logits(load_with("llama3", MemoryTensors::new(tensors))), tied);
}
