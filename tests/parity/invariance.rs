//! A sequence's logits are the same to the bit whatever is computed beside it and however its
//! prompt is cut.

use sconce::layers::forward::KvFormat;

use super::driver::{Driver, greedy};
use super::{load, models, prompt};

/// Tokens after the prompt.
const STEPS: usize = 6;
const LENGTHS: [u32; 8] = [1, 7, 33, 130, 32, 64, 65, 2];

fn vocab(driver_model: &str) -> u32 {
    u32::try_from(load(driver_model).vocab_size()).unwrap()
}

/// Logits of each step of greedy decoding, alone, the prompt in chunks of `chunk`.
fn alone(name: &str, format: KvFormat, length: u32, chunk: usize) -> Vec<Vec<f32>> {
    let mut driver = Driver::new(load(name), format, 8, None);
    let seq = driver.add(&prompt(length, vocab(name)));
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        let logits = driver.finish(seq, chunk);
        driver.push(seq, greedy(&logits));
        steps.push(logits);
    }
    steps
}

fn bits(steps: &[Vec<f32>]) -> Vec<Vec<u32>> {
    steps.iter().map(|logits| logits.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn eight_prompts_at_once_equal_each_alone() {
    for name in models() {
        for format in [KvFormat::F32, KvFormat::Bf16] {
            let mut driver = Driver::new(load(name), format, 64, Some(3));
            let vocab = vocab(name);
            let seqs = LENGTHS.map(|length| driver.add(&prompt(length, vocab)));
            let mut together: Vec<Vec<Vec<f32>>> = vec![Vec::new(); seqs.len()];
            for _ in 0..STEPS {
                let plan: Vec<_> = seqs.iter().map(|s| (*s, driver.remaining(*s))).collect();
                for (seq, logits) in driver.step(&plan) {
                    driver.push(seq, greedy(&logits));
                    together[seq].push(logits);
                }
            }
            for (seq, length) in LENGTHS.into_iter().enumerate() {
                let alone = alone(name, format, length, usize::MAX);
                assert_eq!(bits(&together[seq]), bits(&alone), "{name} {format:?} {length}");
            }
        }
    }
}

#[test]
fn chunks_of_a_prompt_change_nothing() {
    for name in models() {
        for format in [KvFormat::F32, KvFormat::F16] {
            let whole = bits(&alone(name, format, 130, usize::MAX));
            for chunk in [1, 5, 32, 33] {
                let chunked = bits(&alone(name, format, 130, chunk));
                assert_eq!(chunked, whole, "{name} {format:?}, chunks of {chunk}");
            }
        }
    }
}

#[test]
fn decoding_beside_a_prefill_changes_nothing() {
    for name in models() {
        let vocab = vocab(name);
        let mut driver = Driver::new(load(name), KvFormat::Bf16, 64, Some(11));
        let decoding = driver.add(&prompt(33, vocab));
        let mut decoded = vec![driver.finish(decoding, usize::MAX)];
        let prefilling = driver.add(&prompt(130, vocab));
        let mut prefilled = Vec::new();
        while decoded.len() < STEPS || prefilled.is_empty() {
            driver.push(decoding, greedy(decoded.last().unwrap()));
            let chunk = driver.remaining(prefilling).min(29);
            let plan = match chunk {
                0 => vec![(decoding, 1)],
                _ => vec![(prefilling, chunk), (decoding, 1)],
            };
            for (seq, logits) in driver.step(&plan) {
                if seq == decoding { &mut decoded } else { &mut prefilled }.push(logits);
            }
        }
        let alone_decoded = alone(name, KvFormat::Bf16, 33, usize::MAX);
        assert_eq!(bits(&decoded[..STEPS]), bits(&alone_decoded), "{name}");
        let alone_prefilled = alone(name, KvFormat::Bf16, 130, usize::MAX);
        assert_eq!(bits(&prefilled[..1]), bits(&alone_prefilled[..1]), "{name}");
    }
}

/// A prompt that begins like an earlier one is computed from where they part.
#[test]
fn a_prefix_from_the_cache_changes_nothing() {
    for name in models() {
        if Driver::new(load(name), KvFormat::F32, 1, None).keeps_states() {
            continue;
        }
        for format in [KvFormat::F32, KvFormat::Bf16] {
            let vocab = vocab(name);
            let mut first = prompt(130, vocab);
            let expected = {
                let mut driver = Driver::new(load(name), format, 8, None);
                let seq = driver.add(&first);
                driver.finish(seq, usize::MAX)
            };
            let mut driver = Driver::new(load(name), format, 32, Some(5));
            let mut second = first.clone();
            first[100] = (first[100] + 1) % vocab;
            let earlier = driver.add(&first);
            driver.finish(earlier, 50);
            for shared in [32, 96] {
                let hit = driver.add_behind(earlier, shared, &second);
                let logits = driver.finish(hit, usize::MAX);
                assert_eq!(
                    bits(&[logits]),
                    bits(std::slice::from_ref(&expected)),
                    "{name} {format:?} {shared}"
                );
            }
            // All blocks of the earlier one that are whole, and one token behind them.
            second = first[..128].to_vec();
            second.push(first[128]);
            let mut alone = Driver::new(load(name), format, 8, None);
            let seq = alone.add(&second);
            let expected = alone.finish(seq, usize::MAX);
            let hit = driver.add_behind(earlier, 128, &second);
            let logits = driver.finish(hit, usize::MAX);
            assert_eq!(bits(&[logits]), bits(&[expected]), "{name} {format:?}");
        }
    }
}
