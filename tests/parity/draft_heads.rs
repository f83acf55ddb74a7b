//! The heads of checkpoints that draft, beside a reference that is made of transformers' layers.
//!
//! The fixtures are made by `tests/fixtures/make_mtp.py`: tensors that a parity checkpoint has besides.

use std::path::Path;
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use candle_core::{Device, Tensor, safetensors};
use sconce::layers::forward::{
    BLOCK_SIZE, ForwardBatch, ForwardContext, KvFormat, KvLayer, PreviousHidden,
};
use sconce::models::config::HfConfig;
use sconce::models::{CausalLm, ForwardOutput, WithDraftHead, load_with_draft_head};
use sconce::weights::{MemoryTensors, Weights};
use serde::Deserialize;

use super::driver::{Driver, greedy};
use super::reference::log_softmax;
use super::{folder, open, prompt};

const NAMES: [&str; 5] = ["deepseek_v3", "glm4_moe", "qwen2", "qwen3_5", "qwen3_next"];

/// What the reference computed behind a prompt: log-probabilities of the token after the next one, and of
/// those behind it, as far as the head goes on by itself.
#[derive(Deserialize)]
struct Expected {
    length: u32,
    tokens: Vec<u32>,
    logprobs: Vec<Vec<f32>>,
}

fn mtp(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mtp").join(name)
}

/// A parity checkpoint in f32, with the tensors of its head or without.
fn load(name: &str, with_head: bool) -> WithDraftHead {
    let mut tensors =
        safetensors::load(folder(name).join("model.safetensors"), &Device::Cpu).unwrap();
    if with_head {
        let head = safetensors::load(mtp(name).join("mtp.safetensors"), &Device::Cpu).unwrap();
        tensors.extend(head);
    }
    let config = HfConfig::from_value(&open(name).config).unwrap();
    let tensors = MemoryTensors::new(tensors);
    let weights = Weights::new(Arc::new(tensors), Device::Cpu).rounded_to(Some(GgmlDType::F32));
    load_with_draft_head(&config, &weights).unwrap()
}

/// Runs a head over rows from `first` on; logits and hidden states of the last.
fn run(
    head: &dyn CausalLm,
    kv: &[KvLayer],
    first: u32,
    tokens: &[u32],
    hidden: &[Vec<f32>],
) -> [Vec<f32>; 2] {
    // Blocks in descending order.
    let table: Vec<u32> = (0..4).rev().collect();
    let block_size = u32::try_from(BLOCK_SIZE).unwrap();
    let slot = |position: u32| {
        table[(position / block_size) as usize] * block_size + position % block_size
    };
    let count = u32::try_from(tokens.len()).unwrap();
    let end = first + count;
    let mut batch = ForwardBatch::default();
    batch.step.input_ids = tokens.to_vec();
    batch.step.positions = (first..end).collect();
    batch.step.slots = (first..end).map(slot).collect();
    batch.step.block_tables = vec![table.clone()];
    batch.step.cu_seqlens_q = vec![0, count];
    batch.step.context_lens = vec![end];
    batch.step.sequence_lens = vec![end];
    batch.step.state_slots = vec![0];
    batch.logits_rows = vec![count - 1];
    batch.hidden_rows = vec![count - 1];
    batch.previous_hidden =
        Some(PreviousHidden(Tensor::new(hidden.to_vec(), &Device::Cpu).unwrap()));
    let context = ForwardContext { device: &Device::Cpu, kv, states: &[] };
    let ForwardOutput { logits, hidden } = head.forward(&context, &batch).unwrap();
    [logits, hidden.unwrap()].map(|rows| rows.squeeze(0).unwrap().to_vec1().unwrap())
}

#[test]
fn heads_draft_what_the_reference_drafts() {
    for name in NAMES {
        let expected = std::fs::read_to_string(mtp(name).join("expected.json")).unwrap();
        let expected: Expected = serde_json::from_str(&expected).unwrap();
        let WithDraftHead { model, head } = load(name, true);
        let (head, bytes) = head.unwrap_or_else(|| panic!("{name} has no head"));
        assert!(head.needs_hidden() && bytes > 0);
        let tokens = prompt(expected.length, u32::try_from(model.vocab_size()).unwrap());
        let mut driver = Driver::new(model, KvFormat::F32, 8, Some(3));
        let seq = driver.add(&tokens);
        let mut hidden = driver.hidden(&[(seq, tokens.len())]).0.remove(0);
        // What the model has behind the last token is not known when the next one is drafted.
        hidden.pop();
        let zeros = |dims: [usize; 4]| KvFormat::F32.zeros(dims, &Device::Cpu);
        let layer = |heads: &sconce::layers::forward::KvHeads| heads.layer(4, KvFormat::F32, zeros);
        let kv = head.kv_shape().layers.iter().map(layer).collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(kv.len(), 1, "{name}");
        // In two parts, as chunks of a prompt are.
        let (tokens, half) = (&tokens[1..], 17);
        run(&*head, &kv, 0, &tokens[..half], &hidden[..half]);
        let mut told = run(&*head, &kv, 17, &tokens[half..], &hidden[half..]);
        let steps = expected.tokens.iter().zip(&expected.logprobs);
        for (position, (token, theirs)) in (expected.length - 1..).zip(steps) {
            let [logits, hidden] = told;
            let ours = log_softmax(&logits);
            assert_eq!(greedy(&ours), *token, "{name} at {position}");
            let off = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 2e-4, "{name} at {position}: {off}");
            told = run(&*head, &kv, position, &[*token], &[hidden]);
        }
    }
}

#[test]
fn a_checkpoint_without_a_head_has_none_and_the_same_model() {
    for name in NAMES {
        let WithDraftHead { model, head } = load(name, false);
        assert!(head.is_none(), "{name}");
        let tokens = prompt(9, u32::try_from(model.vocab_size()).unwrap());
        let logits = [model, load(name, true).model].map(|model| {
            let mut driver = Driver::new(model, KvFormat::F32, 8, None);
            let seq = driver.add(&tokens);
            driver.finish(seq, 4).into_iter().map(f32::to_bits).collect::<Vec<_>>()
        });
        assert_eq!(logits[0], logits[1], "{name}");
    }
}
