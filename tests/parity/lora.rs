//! LoRA adapters beside what PEFT computes with them, and beside each other in one batch.
//!
//! The fixtures are made by `tests/fixtures/make_lora.py`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::quantized::GgmlDType;
use sconce::layers::forward::{Adapter, KvFormat};
use sconce::models::CausalLm;
use sconce::models::adapter::AdapterForm;
use sconce::weights::lora::LoraFolder;

use super::driver::{Driver, greedy};
use super::reference::{Distance, Run, follow_with};
use super::{device, load, load_as, prompt};

/// Folders below `tests/fixtures/lora`: one per way in which a model keeps its linear layers.
const ADAPTERS: &[&str] = &[
    "cohere",
    "deepseek_v3",
    "gemma3_conditional",
    "glm",
    "gpt2",
    "gpt_neox",
    "granite",
    "llama2",
    "llama3",
    "llama3-bf16",
    "mixtral",
    "olmo2",
    "phi3",
    "qwen2",
    "qwen3",
    "qwen3_5",
    "starcoder2",
];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/lora").join(name)
}

/// The checkpoint that an adapter belongs to.
fn base(name: &str) -> &str {
    name.split('-').next().unwrap()
}

fn adapter(model: &dyn CausalLm, name: &str, kind: Option<GgmlDType>) -> Arc<Adapter> {
    let form = AdapterForm { device: device().clone(), kind, max_rank: 8 };
    let folder = LoraFolder::open(&folder(name)).unwrap();
    Arc::new(model.adapter_layout().unwrap().load(&folder, &form).unwrap())
}

fn reference(name: &str) -> Vec<Run> {
    let text = std::fs::read_to_string(folder(name).join("reference.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn f32_logprobs_and_greedy_tokens_equal_those_of_peft() {
    for name in ADAPTERS {
        let model = load_as(base(name), Some(GgmlDType::F32));
        let vocab = u32::try_from(model.vocab_size()).unwrap();
        let adapter = adapter(&*model, name, Some(GgmlDType::F32));
        let mut driver = Driver::new(model, KvFormat::F32, 64, Some(7));
        for run in &reference(name) {
            let ours = follow_with(&mut driver, run, vocab, Some(adapter.clone()));
            let tokens: Vec<u32> = ours.iter().map(|logprobs| greedy(logprobs)).collect();
            assert_eq!(tokens, run.tokens, "{name}, prompt of {}", run.prompt);
            let off = Distance::to_run(&ours, run);
            assert!(off.largest < 2e-4, "{name}, prompt of {}: {off:?}", run.prompt);
        }
    }
}

/// Sequences of a batch: prompt and adapter. Neighbours differ, and some have none.
fn company(adapters: [Option<Arc<Adapter>>; 3]) -> Vec<(u32, Option<Arc<Adapter>>)> {
    let [none, first, second] = adapters;
    vec![
        (33, first.clone()),
        (7, none.clone()),
        (64, second.clone()),
        (1, first.clone()),
        (130, none),
        (40, first),
        (2, second),
    ]
}

const STEPS: usize = 4;

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// Logits of each step of greedy decoding, the prompt in chunks.
fn alone(
    name: &str,
    (length, adapter): &(u32, Option<Arc<Adapter>>),
    chunk: usize,
) -> Vec<Vec<u32>> {
    let model = load(base(name));
    let vocab = u32::try_from(model.vocab_size()).unwrap();
    let mut driver = Driver::new(model, KvFormat::Bf16, 8, None);
    let seq = driver.add_adapted(&prompt(*length, vocab), adapter.clone());
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        let logits = driver.finish(seq, chunk);
        driver.push(seq, greedy(&logits));
        steps.push(bits(&logits));
    }
    steps
}

/// Two adapters of a model: its own, and one that changes fewer layers where there is one.
fn adapters(name: &str) -> [Option<Arc<Adapter>>; 3] {
    let model = load(base(name));
    let other = if name == "llama3" { "llama3-bf16" } else { name };
    [None, Some(adapter(&*model, name, None)), Some(adapter(&*model, other, None))]
}

#[test]
fn adapters_in_one_batch_change_no_bit_of_each_other_nor_of_rows_without() {
    for name in ADAPTERS {
        let company = company(adapters(name));
        let model = load(base(name));
        let vocab = u32::try_from(model.vocab_size()).unwrap();
        let mut driver = Driver::new(model, KvFormat::Bf16, 64, Some(5));
        let seqs: Vec<_> = company
            .iter()
            .map(|(length, adapter)| driver.add_adapted(&prompt(*length, vocab), adapter.clone()))
            .collect();
        let mut together: Vec<Vec<Vec<u32>>> = vec![Vec::new(); seqs.len()];
        for _ in 0..STEPS {
            let plan: Vec<_> = seqs.iter().map(|seq| (*seq, driver.remaining(*seq))).collect();
            for (seq, logits) in driver.step(&plan) {
                driver.push(seq, greedy(&logits));
                together[seq].push(bits(&logits));
            }
        }
        for (index, member) in company.iter().enumerate() {
            let which = format!("{name}, sequence {index}");
            assert_eq!(together[index], alone(name, member, usize::MAX), "{which}");
            assert_eq!(together[index], alone(name, member, 13), "{which} in chunks");
            if member.1.is_some() {
                let plain = (member.0, None);
                assert_ne!(together[index], alone(name, &plain, usize::MAX), "{which}");
            }
        }
    }
}

#[test]
fn hidden_states_beside_logits_are_those_with_the_adapter() {
    for name in ["llama2", "llama3"] {
        let [_, adapter, _] = adapters(name);
        let model = load(base(name));
        let vocab = u32::try_from(model.vocab_size()).unwrap();
        let mut driver = Driver::new(model, KvFormat::Bf16, 16, None);
        let (plain, changed) =
            (driver.add(&prompt(9, vocab)), driver.add_adapted(&prompt(9, vocab), adapter.clone()));
        let (states, rows) = driver.hidden(&[(plain, 9), (changed, 9)]);
        assert_ne!(states[0], states[1]);
        for (seq, logits) in rows {
            let member = (9, if seq == changed { adapter.clone() } else { None });
            assert_eq!(bits(&logits), alone(name, &member, usize::MAX)[0], "{name}");
        }
    }
}
