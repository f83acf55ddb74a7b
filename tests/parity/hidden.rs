//! Hidden states, which become embeddings: beside those of transformers, and beside themselves.
//!
//! The expected numbers are made by `tests/fixtures/make_embeddings.py`.

use candle_core::quantized::GgmlDType;
use sconce::layers::forward::KvFormat;
use serde::Deserialize;

use super::driver::Driver;
use super::{folder, load, load_as, models, prompt};

/// Of a prompt: the last hidden state of its first and last token, and the mean of all.
#[derive(Deserialize)]
struct Run {
    prompt: u32,
    cls: Vec<f32>,
    last: Vec<f32>,
    mean: Vec<f32>,
}

fn runs(name: &str) -> Vec<Run> {
    let text = std::fs::read_to_string(folder(name).join("hidden.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn assert_near(ours: &[f32], theirs: &[f32], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() < 2e-4, "{what}: {a} and {b}");
    }
}

#[test]
fn f32_hidden_states_equal_the_reference() {
    for name in models() {
        let model = load_as(name, Some(GgmlDType::F32));
        let vocab = u32::try_from(model.vocab_size()).unwrap();
        let mut driver = Driver::new(model, KvFormat::F32, 64, Some(7));
        for run in runs(name) {
            let seq = driver.add(&prompt(run.prompt, vocab));
            let states = driver.hidden(&[(seq, run.prompt as usize)]).0.remove(0);
            let mean: Vec<f32> = (0..run.mean.len())
                .map(|i| states.iter().map(|state| state[i]).sum::<f32>() / states.len() as f32)
                .collect();
            let which = format!("{name}, prompt of {}", run.prompt);
            assert_near(&states[0], &run.cls, &which);
            assert_near(states.last().unwrap(), &run.last, &which);
            assert_near(&mean, &run.mean, &which);
        }
    }
}

fn bits(states: &[Vec<f32>]) -> Vec<Vec<u32>> {
    states.iter().map(|state| state.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn hidden_states_do_not_depend_on_company_or_chunks_and_change_no_logits() {
    for name in models() {
        let vocab = u32::try_from(load(name).vocab_size()).unwrap();
        let lengths = [1, 33, 130, 64];
        let alone = lengths.map(|length| {
            let mut driver = Driver::new(load(name), KvFormat::Bf16, 8, None);
            let seq = driver.add(&prompt(length, vocab));
            bits(&driver.hidden(&[(seq, length as usize)]).0[0])
        });
        let mut driver = Driver::new(load(name), KvFormat::Bf16, 64, Some(5));
        let seqs = lengths.map(|length| driver.add(&prompt(length, vocab)));
        let mut together = vec![Vec::new(); seqs.len()];
        let mut logits = vec![Vec::new(); seqs.len()];
        while seqs.iter().any(|seq| driver.remaining(*seq) > 0) {
            let plan = seqs.map(|seq| (seq, driver.remaining(seq).min(29)));
            let plan: Vec<_> = plan.into_iter().filter(|(_, count)| *count > 0).collect();
            let (states, ended) = driver.hidden(&plan);
            for ((seq, _), states) in plan.iter().zip(states) {
                together[*seq].extend(bits(&states));
            }
            for (seq, row) in ended {
                logits[seq] = row;
            }
        }
        assert_eq!(together, alone, "{name}");
        for (length, logits) in lengths.into_iter().zip(logits) {
            let mut driver = Driver::new(load(name), KvFormat::Bf16, 8, None);
            let seq = driver.add(&prompt(length, vocab));
            assert_eq!(bits(&[logits]), bits(&[driver.finish(seq, usize::MAX)]), "{name}");
        }
    }
}
